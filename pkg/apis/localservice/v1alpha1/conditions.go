package v1alpha1

// Condition types of a LocalService.
const (
	// ConditionReady is True when every selected node has its Service, in place and up to date. It is Unknown until a
	// controller reports for the first time.
	ConditionReady = "Ready"
	// ConditionProgressing is True while Services are being written.
	ConditionProgressing = "Progressing"
	// ConditionConflicted is True while a Service name is taken by an object that belongs to somebody else.
	ConditionConflicted = "Conflicted"
	// ConditionContested is True while something else sets what the controller writes: an admission webhook or policy in
	// the same request, or another program soon after it. The message names the fields, which are written again within
	// two minutes.
	ConditionContested = "Contested"
	// ConditionStalled is present, and True, while the LocalService is not ready and will not be until somebody edits
	// something: its spec, or whatever the message names. It has the reason and the message of Ready. With it, kstatus,
	// which Helm and Flux use to wait, reports a LocalService as Failed; without it, as InProgress until it is ready.
	ConditionStalled = "Stalled"
)

// Reasons of the conditions of a LocalService.
const (
	// ReasonWaitingForController: no controller has reported on the LocalService yet.
	ReasonWaitingForController = "WaitingForController"
	// ReasonServicesInPlace: every selected node has its Service (Ready), or nothing remains to be done (Progressing).
	ReasonServicesInPlace = "ServicesInPlace"
	// ReasonHostnamesInPlace: every name of mode Hostnames is published.
	ReasonHostnamesInPlace = "HostnamesInPlace"
	// ReasonNoneAnswering: every selected node has its Service, or its name is published, and none answers: no pod is
	// ready, or no container has the port. Ready is True, because pods are not the controller's part.
	ReasonNoneAnswering = "NoneAnswering"
	// ReasonHostnamesNotPermitted: the controller may not write EndpointSlices, which mode Hostnames needs.
	ReasonHostnamesNotPermitted = "HostnamesNotPermitted"
	// ReasonNoEndpointSlices: Kubernetes has not published the pods of mode Hostnames yet.
	ReasonNoEndpointSlices = "NoEndpointSlices"
	// ReasonNoNodesSelected: no node matches spec.nodeSelector and spec.nodeSelectorTerms, or has the label that
	// spec.groupBy names. While no node matches, Services of nodes that exist, and published names, are kept.
	ReasonNoNodesSelected = "NoNodesSelected"
	// ReasonWritingServices: Services are being created, changed or deleted.
	ReasonWritingServices = "WritingServices"
	// ReasonWriteFailed: the API server refused at least one write; the message has its answer.
	ReasonWriteFailed = "WriteFailed"
	// ReasonWaiting: a Service is being deleted, and its successor waits for the name.
	ReasonWaiting = "WaitingForDeletion"
	// ReasonNameTaken: a Service name is taken by an object that this LocalService does not control, or two nodes, or
	// groups of them, want one name.
	ReasonNameTaken = "NameTaken"
	// ReasonNoConflict: no Service name is taken by somebody else.
	ReasonNoConflict = "NoConflict"
	// ReasonContested: something else sets what the controller writes.
	ReasonContested = "Contested"
	// ReasonNotContested: nothing else sets what the controller writes.
	ReasonNotContested = "NotContested"
	// ReasonInvalidSpec: the spec cannot be turned into Services; the message says what to change.
	ReasonInvalidSpec = "InvalidSpec"
)
