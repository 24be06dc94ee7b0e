package plan

import (
	"hash/maphash"
	"slices"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// KubernetesSliceManager manages the EndpointSlices in which Kubernetes publishes the pods of a Service.
const KubernetesSliceManager = "endpointslice-controller.k8s.io"

// EndpointSlice provides what a plan reads of an EndpointSlice: one of the Source, or its copy with hostnames, which
// belongs to the Published Service.
type EndpointSlice interface {
	GetName() string
	GetUID() types.UID
	GetResourceVersion() string
	// Controller returns the object that controls the EndpointSlice; the zero value if none does.
	Controller() Controller
	// Manager returns who manages the EndpointSlice, according to its label.
	Manager() string
	// Metadata returns the labels of an EndpointSlice that Kubernetes has not published for pods, and the record of
	// which labels come from spec.serviceMetadata.
	Metadata() (labels Labels, applied string)
	// Sum returns a hash of all that the EndpointSlice publishes.
	Sum() SliceSum
	// ReadyHostnames returns the hostnames that a copy publishes with a ready endpoint.
	ReadyHostnames() []string
	// Get returns the addresses of an EndpointSlice of the Source.
	Get() *discoveryv1.EndpointSlice
}

// apiSlice wraps an EndpointSlice that the API server returned.
type apiSlice struct {
	*discoveryv1.EndpointSlice
	sum SliceSum
}

// SliceFromAPI wraps an EndpointSlice that the API server returned. The caller must not change it afterwards.
func SliceFromAPI(slice *discoveryv1.EndpointSlice) EndpointSlice {
	return apiSlice{slice, SumOf(slice)}
}

func (s apiSlice) Controller() Controller { return ControllerOf(s.EndpointSlice) }
func (s apiSlice) Manager() string        { return s.Labels[discoveryv1.LabelManagedBy] }
func (s apiSlice) Metadata() (Labels, string) {
	return labels.Set(s.Labels), s.Annotations[v1alpha1.AppliedMetadataAnnotationKey]
}
func (s apiSlice) ReadyHostnames() []string        { return ReadyHostnames(s.EndpointSlice) }
func (s apiSlice) Sum() SliceSum                   { return s.sum }
func (s apiSlice) Get() *discoveryv1.EndpointSlice { return new(*s.EndpointSlice) }

// SliceSum summarizes the content of an EndpointSlice in hashes. Two EndpointSlices that differ only in their
// hostnames have the same Rest and Endpoints. Only sums of the same process can be compared.
type SliceSum struct {
	Rest      uint64
	Endpoints []EndpointSum
	Hostnames uint64
}

// Same reports whether two EndpointSlices publish the same content, including hostnames.
func (s SliceSum) Same(other SliceSum) bool {
	return s.Rest == other.Rest && s.Hostnames == other.Hostnames
}

// EndpointSum summarizes an endpoint without its hostname. One is held in memory for each pod with a name.
type EndpointSum struct {
	Sum  uint64
	Node unique.Handle[string] // "" for none
}

var seed = maphash.MakeSeed()

// SumOf returns the sum of an EndpointSlice. It does not change the EndpointSlice.
func SumOf(slice *discoveryv1.EndpointSlice) SliceSum {
	sum := SliceSum{Rest: hash(&discoveryv1.EndpointSlice{AddressType: slice.AddressType, Ports: slice.Ports}),
		Endpoints: make([]EndpointSum, 0, len(slice.Endpoints))}
	for _, endpoint := range slice.Endpoints {
		hostname, node := ptr.Deref(endpoint.Hostname, ""), ptr.Deref(endpoint.NodeName, "")
		endpoint.Hostname = nil
		of := EndpointSum{Sum: hash(&endpoint), Node: unique.Make(node)}
		sum.Endpoints = append(sum.Endpoints, of)
		sum.Hostnames = addHostname(sum.Hostnames, of.Sum, hostname)
	}
	return sum
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

// ReadyHostnames returns the hostnames that an EndpointSlice publishes with a ready endpoint, each once.
func ReadyHostnames(slice *discoveryv1.EndpointSlice) (hostnames []string) {
	for i := range slice.Endpoints {
		if e := &slice.Endpoints[i]; e.Hostname != nil && IsReady(e) {
			hostnames = append(hostnames, *e.Hostname)
		}
	}
	slices.Sort(hostnames)
	return slices.Compact(hostnames)
}

// IsReady reports whether an endpoint is ready. The API treats unknown as ready.
func IsReady(endpoint *discoveryv1.Endpoint) bool { return ptr.Deref(endpoint.Conditions.Ready, true) }
