package plan

import (
	"hash/maphash"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// KubernetesSliceManager is who manages the EndpointSlices in which Kubernetes publishes the pods of a Service.
const KubernetesSliceManager = "endpointslice-controller.k8s.io"

// EndpointSlice is what a plan reads of an EndpointSlice: one of the Source, or one of the Published Service, which is
// the copy of one of the Source with hostnames.
type EndpointSlice interface {
	GetName() string
	GetUID() types.UID
	GetResourceVersion() string
	// Controller is the object that controls the EndpointSlice, the zero value if none does.
	Controller() Controller
	// Manager is who says that it manages the EndpointSlice.
	Manager() string
	// Sum is that of all that is published.
	Sum() SliceSum
	// Get returns the addresses, of a Source's EndpointSlice.
	Get() *discoveryv1.EndpointSlice
}

// apiSlice makes an EndpointSlice of one as the API server returns it.
type apiSlice struct {
	*discoveryv1.EndpointSlice
	sum SliceSum
}

// SliceFromAPI makes an EndpointSlice of one as the API server returns it, which must not change any more.
func SliceFromAPI(slice *discoveryv1.EndpointSlice) EndpointSlice {
	sum, err := SumOf(slice)
	if err != nil {
		panic(err) // It has been decoded.
	}
	return apiSlice{slice, sum}
}

func (s apiSlice) Controller() Controller          { return ControllerOf(s.EndpointSlice) }
func (s apiSlice) Manager() string                 { return s.Labels[discoveryv1.LabelManagedBy] }
func (s apiSlice) Sum() SliceSum                   { return s.sum }
func (s apiSlice) Get() *discoveryv1.EndpointSlice { return new(*s.EndpointSlice) }

// SliceSum stands for the content of an EndpointSlice: two that are the same in all but their hostnames have the same
// Rest and Endpoints, but for a copy that has not the labels of one. Sums are of this process: another one has others
// for the same content.
type SliceSum struct {
	Rest      uint64
	Endpoints []EndpointSum
	Hostnames uint64
}

// Same reports whether two EndpointSlices publish the same, hostnames included.
func (s SliceSum) Same(other SliceSum) bool {
	return s.Rest == other.Rest && s.Hostnames == other.Hostnames
}

// EndpointSum stands for an endpoint without its hostname. There are as many in memory as pods have names.
type EndpointSum struct {
	Sum  uint64                // odd if the endpoint is ready
	Node unique.Handle[string] // "" for none
}

func (e EndpointSum) isReady() bool { return e.Sum&1 == 1 }

var seed = maphash.MakeSeed()

// SumOf returns the sum of an EndpointSlice, which it does not change. Of one that Kubernetes does not manage, that is
// of a copy, it takes in whether it has the labels of one.
func SumOf(slice *discoveryv1.EndpointSlice) (SliceSum, error) {
	rest := discoveryv1.EndpointSlice{AddressType: slice.AddressType, Ports: slice.Ports}
	encoded, err := rest.Marshal()
	if err != nil {
		return SliceSum{}, err
	}
	sum := SliceSum{Rest: maphash.Bytes(seed, encoded), Endpoints: make([]EndpointSum, 0, len(slice.Endpoints))}
	if slice.Labels[discoveryv1.LabelManagedBy] != KubernetesSliceManager &&
		!subset(copyLabels(ControllerOf(slice).Name), labels.Set(slice.Labels)) {
		sum.Rest++
	}
	for _, endpoint := range slice.Endpoints {
		hostname, node := value(endpoint.Hostname), value(endpoint.NodeName)
		endpoint.Hostname = nil
		if encoded, err = endpoint.Marshal(); err != nil {
			return SliceSum{}, err
		}
		of := EndpointSum{Sum: maphash.Bytes(seed, encoded) &^ 1, Node: unique.Make(node)}
		if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready { // Unknown means ready, says the API.
			of.Sum |= 1
		}
		sum.Endpoints = append(sum.Endpoints, of)
		sum.Hostnames = addHostname(sum.Hostnames, of.Sum, hostname)
	}
	return sum, nil
}

// addHostname returns the sum of endpoints with their hostnames, in order, with one more.
func addHostname(sum, endpoint uint64, hostname string) uint64 {
	return maphash.Comparable(seed, [3]uint64{sum, endpoint, maphash.String(seed, hostname)})
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
