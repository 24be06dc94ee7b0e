package v1alpha1

// Labels, annotations and other names.
const (
	// DefaultNodeLabelKey is the pod label that holds the name of the pod's node, unless the controller's flag
	// -node-label-key names another one.
	DefaultNodeLabelKey = "vm/rack"
	// OwnerLabelKey is the label on every generated Service that holds the name of its LocalService.
	OwnerLabelKey = "owner"
	// NodeAnnotationKey is the annotation on every generated Service that holds the whole name of its node,
	// also where that name is too long for a label value.
	NodeAnnotationKey = "localservice.dev/node"
	// AppliedMetadataAnnotationKey is the annotation on a generated Service that lists the label and annotation
	// keys that came from spec.serviceMetadata, so that a key removed there can be distinguished from one that
	// somebody else has set.
	AppliedMetadataAnnotationKey = "localservice.dev/applied-metadata"
	// HostnamesLabelKey is the label on the Services and EndpointSlices of a LocalService with mode: Hostnames. Its
	// value says what each is for.
	HostnamesLabelKey = "localservice.dev/hostnames"
	// HostnamesSource is the value of HostnamesLabelKey on the Service that selects the pods, and on its
	// EndpointSlices, which Kubernetes maintains.
	HostnamesSource = "source"
	// HostnamesPublished is the value of HostnamesLabelKey on the Service that has the names, and on its
	// EndpointSlices, which the controller maintains.
	HostnamesPublished = "published"
	// GroupByAnnotationKey is the annotation on the Service that has the names. It holds their spec.groupBy.
	GroupByAnnotationKey = "localservice.dev/group-by"
	// NamespacesAnnotationKey is the annotation on the controller's Lease with the namespaces that it watches, "" for all.
	NamespacesAnnotationKey = "localservice.dev/namespaces"
	// UnguardedAnnotationKey is the annotation on the controller's Lease with what the guard does not protect.
	UnguardedAnnotationKey = "localservice.dev/unguarded"
	// EndpointSliceManager is the value of the label endpointslice.kubernetes.io/managed-by on the EndpointSlices that
	// the controller maintains.
	EndpointSliceManager = "local-service-controller.localservice.dev"
	// FieldManager is the name of the controller in the managedFields of what it writes.
	FieldManager = "local-service-controller"
)
