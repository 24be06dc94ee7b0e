package plan

import (
	"hash/maphash"
	"slices"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// KubernetesSliceManager manages the EndpointSlices in which Kubernetes publishes the pods of a Service.
const KubernetesSliceManager = "endpointslice-controller.k8s.io"

// EndpointSlice keeps the fields that are read from an EndpointSlice of mode Hostnames: one of the Source, or its copy
// with hostnames, which belongs to the Published Service.
type EndpointSlice struct {
	Identity

	UID     types.UID
	Manager unique.Handle[string] // from the label
	Ports   []discoveryv1.EndpointPort
	// Get returns the addresses. The cache packs those of the Source, and has none of a copy.
	Get func() *discoveryv1.EndpointSlice

	controller   unique.Handle[Controller]
	localService unique.Handle[string]
	sum          sliceSum
	endpoints    []endpointSum              // of the Source
	labels       unique.Handle[LabelString] // of a copy; others are not read
	applied      unique.Handle[string]      // the record of labels from spec.serviceMetadata, of a copy
	hostnames    []unique.Handle[string]    // those with a ready pod, of a copy
}

// SliceFromAPI keeps what is read of an EndpointSlice. The caller must not change that afterwards.
func SliceFromAPI(full *discoveryv1.EndpointSlice) *EndpointSlice {
	controller, manager := ControllerOf(full), full.Labels[discoveryv1.LabelManagedBy]
	sum, endpoints := sumOf(full)
	s := &EndpointSlice{
		Identity:     IdentityOf(full),
		UID:          full.UID,
		Manager:      unique.Make(manager),
		Ports:        full.Ports,
		Get:          func() *discoveryv1.EndpointSlice { return new(*full) },
		controller:   unique.Make(controller),
		localService: unique.Make(full.Labels[v1alpha1.OwnerLabelKey]),
		sum:          sum,
		labels:       unique.Make(LabelString("")),
		applied:      unique.Make(""),
	}
	if manager == KubernetesSliceManager {
		s.endpoints = endpoints
		return s
	}
	if controller.Name != "" { // The Published Service has the name of its LocalService, even if labels are lost.
		s.localService = unique.Make(controller.Name)
	}
	for i := range full.Endpoints {
		e := &full.Endpoints[i]
		hostname := unique.Make(ptr.Deref(e.Hostname, ""))
		if e.Hostname != nil && Answers(e) && !slices.Contains(s.hostnames, hostname) {
			s.hostnames = append(s.hostnames, hostname)
		}
	}
	s.labels = unique.Make(LabelStringOf(full.Labels))
	s.applied = unique.Make(full.Annotations[v1alpha1.AppliedMetadataAnnotationKey])
	return s
}

// LocalService returns the key of the LocalService that the EndpointSlice claims to belong to.
func (s *EndpointSlice) LocalService() types.NamespacedName {
	return types.NamespacedName{Namespace: s.GetNamespace(), Name: s.localService.Value()}
}

// LocalServiceOf returns the key of the LocalService that an EndpointSlice claims to belong to.
func LocalServiceOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[v1alpha1.OwnerLabelKey]}
}

// Same reports whether two states of an EndpointSlice differ only in the resource version.
func (s *EndpointSlice) Same(other *EndpointSlice) bool {
	return s.UID == other.UID && s.controller == other.controller && s.Manager == other.Manager &&
		s.localService == other.localService && s.labels == other.labels && s.applied == other.applied &&
		s.sum == other.sum
}

// sliceSum summarizes the content of an EndpointSlice in hashes: of the endpoints with their hostnames, and of the
// rest. Only sums of the same process can be compared.
type sliceSum struct{ endpoints, rest uint64 }

// endpointSum summarizes an endpoint without its hostname. One is held in memory for each pod with a name.
type endpointSum struct {
	sum  uint64
	node unique.Handle[string] // "" for none
}

var seed = maphash.MakeSeed()

// sumOf returns the sums of an EndpointSlice and of its endpoints. It does not change the EndpointSlice.
func sumOf(slice *discoveryv1.EndpointSlice) (sum sliceSum, endpoints []endpointSum) {
	sum.rest = hash(&discoveryv1.EndpointSlice{AddressType: slice.AddressType, Ports: slice.Ports})
	endpoints = make([]endpointSum, 0, len(slice.Endpoints))
	for _, endpoint := range slice.Endpoints {
		hostname, node := ptr.Deref(endpoint.Hostname, ""), ptr.Deref(endpoint.NodeName, "")
		endpoint.Hostname = nil
		of := endpointSum{hash(&endpoint), unique.Make(node)}
		endpoints = append(endpoints, of)
		sum.endpoints = addHostname(sum.endpoints, of.sum, hostname)
	}
	return sum, endpoints
}

func hash(object interface{ Marshal() ([]byte, error) }) uint64 {
	encoded, err := object.Marshal()
	if err != nil {
		panic(err) // It has been decoded.
	}
	return maphash.Bytes(seed, encoded)
}

// addHostname adds an endpoint and its hostname to the sum of the previous endpoints.
func addHostname(sum, endpoint uint64, hostname string) uint64 {
	return maphash.Comparable(seed, [3]uint64{sum, endpoint, maphash.String(seed, hostname)})
}

// IsReady reports whether an endpoint is ready: clients are led to it. The API treats unknown as ready.
func IsReady(endpoint *discoveryv1.Endpoint) bool { return ptr.Deref(endpoint.Conditions.Ready, true) }

// Answers reports whether an endpoint is ready because its pod is. With publishNotReadyAddresses, all endpoints are.
func Answers(endpoint *discoveryv1.Endpoint) bool {
	return IsReady(endpoint) && ptr.Deref(endpoint.Conditions.Serving, true)
}
