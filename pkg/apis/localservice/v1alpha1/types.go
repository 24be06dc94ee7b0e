package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=localservices,singular=localservice,shortName=lsvc,categories=all,scope=Namespaced
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes`,description="Selected nodes; with groupBy, groups of them."
// +kubebuilder:printcolumn:name="Answering",type=string,JSONPath=`.status.ready`,description="Names that answer, of all names: one for each selected node, or group of them. A name answers if at least one endpoint is ready and, unless it is headless, has all ports. Whether anything listens on a port is not checked."
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the condition Ready is True or False."
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,description="How the names are published.",priority=1
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.services`,description="Services that are in place and up to date.",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52",fieldPath=".metadata.name",message="the name is too long: it begins the name of every generated Service, <name>-<node>, which may have 63 characters; choose a name of at most 52 characters"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",fieldPath=".metadata.name",message="the name begins that of every generated Service, so it must start with a letter and hold only lower case letters, digits and '-', without dots"

// LocalService gives every node a Service of its own. The controller creates one Service per node, named
// <name>-<node>, which selects only the pods on that node, so that http://<name>-<node> always answers from there.
// A Service is created when a node joins and deleted when it leaves; all of them follow changes of this spec, and
// are deleted with it. With mode: Hostnames there is one Service for all nodes, and http://<node>.<name> answers from
// there.
type LocalService struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard metadata of an object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec describes the Service of each node, and selects the nodes that get one.
	// +required
	Spec LocalServiceSpec `json:"spec"`

	// status reports what the controller last observed and did. observedGeneration is -1 until the first report.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1,"conditions":{{"type":"Ready","status":"Unknown","reason":"WaitingForController","message":"no controller has reported yet: is the controller running, does it watch this namespace (-namespaces), and may it write the status? Its log says more","lastTransitionTime":"1970-01-01T00:00:00Z"}}}
	Status LocalServiceStatus `json:"status,omitempty,omitzero"`
}

// Mode is how a LocalService publishes the names of nodes.
type Mode string

const (
	// ModeServices publishes a Service for each node.
	ModeServices Mode = "Services"
	// ModeHostnames publishes one headless Service, in which each node has a hostname.
	ModeHostnames Mode = "Hostnames"
)

// LocalServiceSpec is the part of a Service's spec that can be repeated for every node, and the choice of the nodes.
//
// +kubebuilder:validation:XValidation:rule="(has(self.clusterIP) && self.clusterIP == 'None') || (has(self.ports) && size(self.ports) > 0) || (has(self.mode) && self.mode == 'Hostnames')",message="ports is empty: a Service with a cluster IP needs at least one port; add one, or set clusterIP: None"
// +kubebuilder:validation:XValidation:rule="!(has(self.clusterIP) && self.clusterIP == 'None') || !has(self.type) || self.type == 'ClusterIP'",message="clusterIP: None (headless) works only with type: ClusterIP; a NodePort or LoadBalancer Service needs a cluster IP: remove clusterIP or change type"
// +kubebuilder:validation:XValidation:rule="!has(self.externalTrafficPolicy) || (has(self.type) && self.type in ['NodePort', 'LoadBalancer'])",message="externalTrafficPolicy has a meaning only with type: NodePort or LoadBalancer; remove it or change type"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerClass) || (has(self.type) && self.type == 'LoadBalancer')",message="loadBalancerClass has a meaning only with type: LoadBalancer; remove it or change type"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerSourceRanges) || size(self.loadBalancerSourceRanges) == 0 || (has(self.type) && self.type == 'LoadBalancer')",message="loadBalancerSourceRanges has a meaning only with type: LoadBalancer; remove it or change type"
// +kubebuilder:validation:XValidation:rule="!has(self.allocateLoadBalancerNodePorts) || (has(self.type) && self.type == 'LoadBalancer')",message="allocateLoadBalancerNodePorts has a meaning only with type: LoadBalancer; remove it or change type"
// +kubebuilder:validation:XValidation:rule="!has(self.sessionAffinityConfig) || (has(self.sessionAffinity) && self.sessionAffinity == 'ClientIP')",message="sessionAffinityConfig has a meaning only with sessionAffinity: ClientIP; set that or remove sessionAffinityConfig"
// +kubebuilder:validation:XValidation:rule="!has(self.ipFamilies) || size(self.ipFamilies) < 2 || !has(self.ipFamilyPolicy) || self.ipFamilyPolicy != 'SingleStack'",message="two ipFamilies contradict ipFamilyPolicy: SingleStack; name one family, or use PreferDualStack or RequireDualStack"
// +kubebuilder:validation:XValidation:rule="!has(self.groupBy) || (has(self.mode) && self.mode == 'Hostnames')",message="groupBy works only with mode: Hostnames; set that or remove groupBy"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Hostnames') || !has(self.type) || self.type == 'ClusterIP'",message="mode: Hostnames publishes one headless Service, which has no node port and no load balancer; remove type, or use mode: Services"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Hostnames') || !has(self.sessionAffinity) || self.sessionAffinity == 'None'",message="sessionAffinity has no effect with mode: Hostnames, whose Service is headless: clients choose the pod; remove it, or use mode: Services"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Hostnames') || !has(self.internalTrafficPolicy) || self.internalTrafficPolicy == 'Cluster'",message="internalTrafficPolicy has no effect with mode: Hostnames, whose Service is headless; remove it, or use mode: Services"
// +kubebuilder:validation:XValidation:rule="!(has(self.mode) && self.mode == 'Hostnames') || !has(self.serviceMetadata) || ((!has(self.serviceMetadata.labels) || self.serviceMetadata.labels.all(k, !self.serviceMetadata.labels[k].contains('$('))) && (!has(self.serviceMetadata.annotations) || self.serviceMetadata.annotations.all(k, !self.serviceMetadata.annotations[k].contains('$('))))",message="variables in serviceMetadata have no meaning with mode: Hostnames, whose Service is one for all nodes; remove them, or use mode: Services"
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Hostnames') || (has(self.clusterIP) && self.clusterIP == 'None') == (has(oldSelf.clusterIP) && oldSelf.clusterIP == 'None')",message="clusterIP cannot be changed, as on a Service: create a second LocalService, move the clients, and delete this one; or recreate this one with kubectl replace --force, which interrupts its clients"
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Hostnames') || (has(self.clusterIP) && self.clusterIP == 'None') || !has(self.ipFamilies) || size(self.ipFamilies) == 0 || !has(oldSelf.ipFamilies) || size(oldSelf.ipFamilies) == 0 || self.ipFamilies[0] == oldSelf.ipFamilies[0]",message="the first of ipFamilies cannot be changed, as on a Service with a cluster IP: create a second LocalService, move the clients, and delete this one; or recreate this one with kubectl replace --force, which interrupts its clients"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'LoadBalancer' || !has(oldSelf.type) || oldSelf.type != 'LoadBalancer' || (has(self.loadBalancerClass) == has(oldSelf.loadBalancerClass) && (!has(self.loadBalancerClass) || self.loadBalancerClass == oldSelf.loadBalancerClass))",message="loadBalancerClass cannot be changed while type is LoadBalancer, as on a Service: create a second LocalService, move the clients, and delete this one; or recreate this one with kubectl replace --force, which interrupts its clients"
type LocalServiceSpec struct {
	// mode is how the names are published. Services (default): a Service for each node, http://<name>-<node>.
	// Hostnames: one headless Service, named like this LocalService, in which each node has a hostname,
	// http://<node>.<name>: for thousands of nodes. It cannot be changed, because the names differ: create a second
	// LocalService with the other mode, move the clients, and delete this one.
	// +optional
	// +kubebuilder:validation:Enum=Services;Hostnames
	// +kubebuilder:default=Services
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="mode cannot be changed: create a second LocalService with the other mode, move the clients, and delete this one"
	Mode Mode `json:"mode,omitempty"`

	// groupBy is the key of a node label, for mode: Hostnames. With it, each value of that label has a name, instead of
	// each node: http://<value>.<name> answers from the nodes with that value, which is in lower case there, with '-'
	// for each '.' and '_'. NVIDIA-H100-80GB-HBM3 of nvidia.com/gpu.product is http://nvidia-h100-80gb-hbm3.<name>. Nodes
	// without the label have no name.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="groupBy must be the key of a node label: a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, maybe after a domain and a '/'"
	GroupBy string `json:"groupBy,omitempty"`

	// type of every node's Service: ClusterIP (default), NodePort or LoadBalancer. A NodePort or LoadBalancer is
	// allocated for each node's Service, so N nodes use N node ports or N load balancers.
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// clusterIP is None for headless Services, whose names resolve to the pods' own addresses: the recommended form,
	// because it needs no address and no load balancing on any node. If it is omitted, every Service is allocated an
	// address. A fixed address is refused, because several Services cannot share it. It cannot be changed.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == '' || self == 'None'",message="clusterIP cannot be a fixed address, because every node's Service needs its own; use None (headless), or leave it out to have one allocated"
	ClusterIP string `json:"clusterIP,omitempty"`

	// ports that every node's Service exposes, at most 100. May be empty only when clusterIP is None, or with mode:
	// Hostnames: such a name serves every port of its pods, so apps with hundreds of ports need none here. With more than
	// one port, each needs a name.
	// +optional
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="size(self) <= 100",message="ports has more than 100 items; a headless LocalService (clusterIP: None, or mode: Hostnames) needs no ports, because its names serve every port of the pods: leave ports out"
	// +kubebuilder:validation:XValidation:rule="size(self) <= 1 || self.all(p, has(p.name) && size(p.name) > 0)",message="every port needs a name when there is more than one; add name to each"
	// +kubebuilder:validation:XValidation:rule="size(self) > 100 || self.all(p, !has(p.name) || self.exists_one(q, has(q.name) && q.name == p.name))",message="two ports have the same name; give each its own"
	// +kubebuilder:validation:XValidation:rule="size(self) > 100 || self.all(p, self.exists_one(q, q.port == p.port && q.protocol == p.protocol))",message="two ports have the same number and protocol; remove one or change its port"
	Ports []ServicePort `json:"ports,omitempty"`

	// selector of the application's pods, as on a Service, without the node label (vm/rack, unless the controller's
	// flag -node-label-key names another one): the controller adds that to each node's Service. All pairs must match.
	// +required
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="size(self) > 0",message="selector is empty: name at least one label of the pods to reach, for example app: demo"
	// +kubebuilder:validation:XValidation:rule="!('vm/rack' in self)",message="selector names vm/rack, which is reserved: unless the controller's flag -node-label-key names another one, it is the node label, which the controller itself adds to every node's Service; remove it, and use nodeSelector to choose nodes"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="selector has a key that no label can have; a key is a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, maybe after a domain and a '/'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.labelValue().validate(self[k]).hasValue())",message="selector has a value that no label can have; a value has at most 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
	Selector map[string]string `json:"selector"`

	// sessionAffinity is ClientIP to send all connections of a client to the same pod, or None (default).
	// +optional
	// +kubebuilder:validation:Enum=ClientIP;None
	SessionAffinity corev1.ServiceAffinity `json:"sessionAffinity,omitempty"`

	// sessionAffinityConfig refines sessionAffinity: ClientIP.
	// +optional
	SessionAffinityConfig *SessionAffinityConfig `json:"sessionAffinityConfig,omitempty"`

	// publishNotReadyAddresses makes the names resolve to pods that are not ready, too.
	// +optional
	PublishNotReadyAddresses bool `json:"publishNotReadyAddresses,omitempty"`

	// internalTrafficPolicy is Local to let a node's Service be reached from that same node only, or Cluster
	// (default). It has no effect on headless Services.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	InternalTrafficPolicy *corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`

	// externalTrafficPolicy is for type NodePort and LoadBalancer: Local keeps the client's address and answers only
	// on nodes that have a ready pod (that is, on the Service's own node); Cluster (default) answers on all nodes.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// ipFamilies of every node's Service, in order of preference. The first one cannot be changed, unless the Services
	// are headless.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self[0] != self[1]",message="ipFamilies names the same family twice; name each once"
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`

	// ipFamilyPolicy is SingleStack (default), PreferDualStack or RequireDualStack.
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`

	// trafficDistribution is a preference among a Service's pods, as on a Service: PreferClose, or with Kubernetes 1.34
	// or newer also PreferSameZone or PreferSameNode. As all pods of one node's Service are on one node, it has
	// little effect here.
	// +optional
	// +kubebuilder:validation:Enum=PreferClose;PreferSameZone;PreferSameNode
	TrafficDistribution *string `json:"trafficDistribution,omitempty"`

	// loadBalancerClass names the implementation, for type LoadBalancer. It can be changed only together with type.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="loadBalancerClass must be a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, maybe after a domain and a '/'"
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`

	// loadBalancerSourceRanges are the client networks that may connect, in CIDR form, for type LoadBalancer.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, isCIDR(r) && cidr(r).masked() == cidr(r))",message="loadBalancerSourceRanges must be networks in CIDR form, with no bits set beyond the mask, for example 192.0.2.0/24"
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`

	// allocateLoadBalancerNodePorts may be false if the load balancer does not use node ports, for type LoadBalancer:
	// Services that have some when this becomes
	// false release them, and get others when it is true again. The default is true.
	// +optional
	AllocateLoadBalancerNodePorts *bool `json:"allocateLoadBalancerNodePorts,omitempty"`

	// nodeSelector selects the nodes that get a Service, by the nodes' labels; all pairs must match. An empty one
	// selects every node.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="nodeSelector has a key that no label can have; a key is a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, maybe after a domain and a '/'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.labelValue().validate(self[k]).hasValue())",message="nodeSelector has a value that no label can have; a value has at most 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// nodeSelectorTerms select the nodes that get a Service, as in the required node affinity of a pod
	// (requiredDuringSchedulingIgnoredDuringExecution): one of the terms must match. If there is a nodeSelector, it must
	// match, too.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(t, has(t.matchExpressions) ? size(t.matchExpressions) : 0).sum() <= 16 && self.map(t, has(t.matchExpressions) ? t.matchExpressions.map(e, has(e.values) ? size(e.values) : 0).sum() : 0).sum() <= 64",message="nodeSelectorTerms are too large: they may have 16 expressions with 64 values together, because every node is compared with them; give the nodes a label of your own"
	NodeSelectorTerms []NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`

	// serviceMetadata is added to every generated Service, in addition to the controller's own labels. Leave out what
	// something else writes to the Services, too.
	// +optional
	ServiceMetadata *ServiceMetadata `json:"serviceMetadata,omitempty"`
}

// The rule about targetPort avoids regular expressions and ==. Kubernetes 1.32 estimates that they read megabytes, and
// would refuse the CustomResourceDefinition.

// ServicePort is one port of every node's Service.
type ServicePort struct {
	// name of the port, a DNS label. Required when there is more than one port.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="the name of a port has only lower case letters, digits and '-', and begins and ends with a letter or digit, for example http"
	Name string `json:"name,omitempty"`

	// protocol is TCP (default), UDP or SCTP.
	// +optional
	// +default="TCP"
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP;SCTP
	Protocol corev1.Protocol `json:"protocol,omitempty"`

	// appProtocol is a hint about the application protocol, for example http or kubernetes.io/h2c.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="!format.qualifiedName().validate(self).hasValue()",message="appProtocol must be a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, maybe after a domain and a '/'"
	AppProtocol *string `json:"appProtocol,omitempty"`

	// port that the Services listen on.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// targetPort is the number or name of the port on the pods; a name has at most 15 characters. The default is port.
	// Headless Services do not translate ports: their clients connect to the pods' own ports.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) in [int] || self == '' || ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].all(i, i >= size(self) || (self.charAt(i) >= 'a' && self.charAt(i) <= 'z') || (self.charAt(i) >= '0' && self.charAt(i) <= '9') || (self.charAt(i) == '-' && i > 0 && i < size(self) - 1 && self.charAt(i - 1) != '-')) && [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14].exists(i, i < size(self) && self.charAt(i) >= 'a'))",message="targetPort is the number of a port, without quotes, or a name: at most 15 lower case letters, digits and single '-' between them, with at least one letter"
	TargetPort intstr.IntOrString `json:"targetPort,omitempty"`

	// nodePort cannot be set, because no two Services can share one: the API server allocates one to each node's
	// Service when type is NodePort or LoadBalancer.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0",message="nodePort cannot be fixed, because every node's Service needs its own; remove it to have one allocated, or for one port with which each node answers from its own pods create one Service with type: NodePort and externalTrafficPolicy: Local instead"
	NodePort int32 `json:"nodePort,omitempty"`
}

// SessionAffinityConfig is the configuration of session affinity.
type SessionAffinityConfig struct {
	// clientIP configures sessionAffinity: ClientIP.
	// +optional
	ClientIP *ClientIPConfig `json:"clientIP,omitempty"`
}

// ClientIPConfig is the configuration of session affinity by the client's address.
type ClientIPConfig struct {
	// timeoutSeconds is how long, in seconds, a client stays with its pod after its last connection: 1 to 86400
	// (a day). The default is 10800 (three hours).
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// LocalServiceStatus reports what the controller last observed and did. Its size is independent of the number of nodes.
type LocalServiceStatus struct {
	// observedGeneration is the metadata.generation that the rest of this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodes is the number of selected nodes; with groupBy, of groups of them. Each has a name.
	// +optional
	Nodes int32 `json:"nodes"`

	// services is the number of Services that are in place and up to date: one for each node, or with mode: Hostnames
	// two, one that selects the pods, and one that has the names.
	// +optional
	Services int32 `json:"services"`

	// readyNodes is the number of names that answer, of those that nodes counts: a pod is ready and, unless the name is
	// headless, has all ports. Whether a program listens on the number of a port cannot be known.
	// +optional
	ReadyNodes int32 `json:"readyNodes"`

	// ready shows readyNodes and nodes for people to read, for example 2/3.
	// +optional
	Ready string `json:"ready,omitempty"`

	// conditions are Ready (every selected node has its Service), Progressing (Services are being written),
	// Conflicted (a Service name is taken by an object that belongs to somebody else), Contested (something else sets
	// what the controller writes) and, only while it matters, Stalled (nothing changes until somebody edits something).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// LocalServiceList is a list of LocalServices.
type LocalServiceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the LocalServices.
	Items []LocalService `json:"items"`
}
