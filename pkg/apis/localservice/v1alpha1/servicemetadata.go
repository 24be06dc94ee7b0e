package v1alpha1

// Variables in the values of ServiceMetadata, in the syntax of a container's args: $$( stands for $(.
const (
	// VariableNodeName stands for the name of the Service's node.
	VariableNodeName = "$(NODE_NAME)"
	// VariableNodeDNSLabel stands for the name of the node as a DNS label: the hostname that the node has with mode:
	// Hostnames. It is the name with '-' for each '.', or if that is too long, a readable part and a hash.
	VariableNodeDNSLabel = "$(NODE_DNS_LABEL)"
	// VariableNodeLabel stands for the value of the node's label whose key it has, here "key". It looks like the path
	// of a label in the downward API, metadata.labels['key']. On a node without the label, what has the variable is
	// left out.
	VariableNodeLabel = "$(NODE_LABEL['key'])"
)

// ServiceMetadata is added to the metadata of every generated Service. With mode: Services, $(NODE_NAME) in a
// value stands for the name of the Service's node, $(NODE_DNS_LABEL) for that name as a DNS label (without dots, at
// most 63 characters), and $(NODE_LABEL['key']) for the value of a label of the node: on a node without that label, what
// has the variable is left out. $$( stands for $(. With mode: Hostnames, both Services get the metadata, and the
// EndpointSlices with the names its labels; but annotations for those who publish Services (external-dns. and
// prometheus.io/) are only on the Service with the names.
type ServiceMetadata struct {
	// labels to put on every generated Service. The controller's own labels (owner and the node label) cannot be
	// set here.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="!('owner' in self) && !('vm/rack' in self) && !('localservice.dev/hostnames' in self)",message="the labels owner, vm/rack and localservice.dev/hostnames on the Services are reserved for the controller; remove them from serviceMetadata.labels"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k).hasValue())",message="serviceMetadata.labels has a key that no label can have; a key is a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, maybe after a domain and a '/'"
	// +kubebuilder:validation:XValidation:rule="self.all(k, self[k].contains('$(NODE_LABEL[') || !format.labelValue().validate(self[k].replace('$(NODE_NAME)', 'n').replace('$(NODE_DNS_LABEL)', 'n')).hasValue())",message="serviceMetadata.labels has a value that no label can have; a value has at most 63 letters, digits, '-', '_' and '.', begins and ends with a letter or digit, and may have the variables $(NODE_NAME), $(NODE_DNS_LABEL) and $(NODE_LABEL['key'])"
	// +kubebuilder:validation:XValidation:rule=`self.all(k, !self[k].contains("$(NODE_LABEL[") || !self[k].replace("$(NODE_NAME)", "").replace("$(NODE_DNS_LABEL)", "").replace("$(NODE_LABEL['", "").contains("$(") && self[k].contains("'])"))`,message="serviceMetadata.labels has a value with $( that begins no variable; the variables are $(NODE_NAME), $(NODE_DNS_LABEL) and $(NODE_LABEL['key'])"
	// +kubebuilder:validation:XValidation:rule="self.map(k, size(self[k]) - size(self[k].replace('$(', '('))).sum() <= 16",message="serviceMetadata.labels have too many variables: they may have 16 together"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations to put on every generated Service, for example for a load balancer or for external-dns.
	// Annotations under localservice.dev/ belong to the controller.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('localservice.dev/'))",message="annotations under localservice.dev/ belong to the controller; remove them from serviceMetadata.annotations"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !format.qualifiedName().validate(k.lowerAscii()).hasValue())",message="serviceMetadata.annotations has a key that no annotation can have; a key is a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, maybe after a domain and a '/'"
	// +kubebuilder:validation:XValidation:rule="self.map(k, size(self[k]) + size(k)).sum() <= 50000",message="serviceMetadata.annotations are too large: they may have 50000 characters together"
	// +kubebuilder:validation:XValidation:rule="!self.exists(k, self[k].contains('$(')) || self.map(k, size(self[k]) + size(k)).sum() <= 5000 && self.map(k, size(self[k]) - size(self[k].replace('$(', '('))).sum() <= 16",message="serviceMetadata.annotations with variables are too large: they are different for each node, so they may have 5000 characters together, and 16 variables"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !self[k].replace('$$(', '').replace('$(NODE_NAME)', '').replace('$(NODE_DNS_LABEL)', '').replace('$(NODE_LABEL[', '').contains('$('))",message="serviceMetadata.annotations has a value with $( that begins no variable; the variables are $(NODE_NAME), $(NODE_DNS_LABEL) and $(NODE_LABEL['key']), and $$( stands for $("
	// +kubebuilder:validation:XValidation:rule=`self.all(k, !self[k].contains("$(NODE_LABEL[") || self[k].contains("$(NODE_LABEL['") && self[k].contains("'])"))`,message="serviceMetadata.annotations has a variable for the label of a node that is not complete; it is written $(NODE_LABEL['key'])"
	// +kubebuilder:validation:XValidation:rule="self.all(k, !self[k].contains('${NODE_') && !self[k].contains('{{ .Values.'))",message="serviceMetadata.annotations has a value with ${NODE_ or a Helm template, which nothing replaces; the variables are written $(NODE_NAME), $(NODE_DNS_LABEL) and $(NODE_LABEL['key'])"
	// +kubebuilder:validation:XValidation:rule="!('kubectl.kubernetes.io/last-applied-configuration' in self)",message="the annotation kubectl.kubernetes.io/last-applied-configuration belongs to kubectl, and would be that of another object; remove it from serviceMetadata.annotations"
	// +kubebuilder:validation:XValidation:rule="!('service.beta.kubernetes.io/load-balancer-source-ranges' in self)",message="the annotation service.beta.kubernetes.io/load-balancer-source-ranges is an old form of a field; use loadBalancerSourceRanges"
	// +kubebuilder:validation:XValidation:rule="!('service.kubernetes.io/topology-mode' in self && 'service.kubernetes.io/topology-aware-hints' in self) || self['service.kubernetes.io/topology-mode'] == self['service.kubernetes.io/topology-aware-hints']",message="the annotations service.kubernetes.io/topology-mode and service.kubernetes.io/topology-aware-hints contradict each other; remove the second one, which is an old name of the first"
	Annotations map[string]string `json:"annotations,omitempty"`
}
