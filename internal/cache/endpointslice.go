package cache

import (
	"compress/flate"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// trimEndpointSlice keeps what is read of the EndpointSlice of a generated Service: its Service, its LocalService, its
// ports, and whether its endpoints answer.
func trimEndpointSlice(s *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, error) {
	s.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, ResourceVersion: s.ResourceVersion,
		Labels: map[string]string{discoveryv1.LabelServiceName: s.Labels[discoveryv1.LabelServiceName],
			v1alpha1.OwnerLabelKey: s.Labels[v1alpha1.OwnerLabelKey]}}
	for i := range s.Endpoints {
		s.Endpoints[i] = discoveryv1.Endpoint{Conditions: s.Endpoints[i].Conditions}
	}
	return s, nil
}

// IsReady reports whether at least one endpoint of an EndpointSlice is ready, as its pod is.
func IsReady(slice *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return plan.Answers(&e) })
}

// ReadyServices returns the names of the Services of a LocalService that answer: they have a ready endpoint, and of
// their named ports, each at some endpoint.
func (c *Caches) ReadyServices(ls *v1alpha1.LocalService) map[string]bool {
	ready := map[string]bool{}
	published := c.EndpointSlices.indexed(ls.Namespace, ls.Name)
	for _, slice := range published {
		ready[slice.Labels[discoveryv1.LabelServiceName]] = true
	}
	for _, name := range plan.NamedPorts(ls) {
		at := map[string]bool{} // Pods with other ports are in other EndpointSlices.
		for _, slice := range published {
			if slices.ContainsFunc(slice.Ports, func(port discoveryv1.EndpointPort) bool {
				return ptr.Deref(port.Name, "") == name
			}) {
				at[slice.Labels[discoveryv1.LabelServiceName]] = true
			}
		}
		maps.DeleteFunc(ready, func(service string, _ bool) bool { return !at[service] })
	}
	return ready
}

// PortNumbers returns the numbers that the pods of a headless LocalService have for ports whose targetPort is a name.
func (c *Caches) PortNumbers(ls *v1alpha1.LocalService) plan.PortNumbers {
	if plan.HasClusterIPs(ls) || !slices.ContainsFunc(ls.Spec.Ports, func(port v1alpha1.ServicePort) bool {
		return port.TargetPort.StrVal != ""
	}) {
		return nil
	}
	numbers := plan.PortNumbers{}
	for _, slice := range c.EndpointSlices.indexed(ls.Namespace, ls.Name) {
		numbers.Add(slice.Ports)
	}
	for _, slice := range c.HostnameSlices.indexed(ls.Namespace, ls.Name) {
		numbers.Add(slice.Ports)
	}
	return numbers
}

// trimHostnameSlice packs the addresses of an EndpointSlice that Kubernetes manages. Those of a copy are not read.
func trimHostnameSlice(full *discoveryv1.EndpointSlice) (*plan.EndpointSlice, error) {
	s := plan.SliceFromAPI(full)
	s.Get = nil
	if s.Manager.Value() == plan.KubernetesSliceManager {
		packed := pack(full)
		s.Get = func() *discoveryv1.EndpointSlice { return unpack(packed) }
	}
	return s, nil
}

func unpack(packed string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{}
	encoded, err := io.ReadAll(flate.NewReader(strings.NewReader(packed)))
	if err == nil {
		err = out.Unmarshal(encoded)
	}
	if err != nil {
		panic(err) // It was packed by pack.
	}
	return out
}

// packers are reused: each takes a megabyte, and making one takes longer than using it.
var packers = sync.Pool{New: func() any {
	packer, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // The level exists.
	}
	return packer
}}

// pack keeps the addresses in a third of the memory: endpoints have most of their text in common.
func pack(full *discoveryv1.EndpointSlice) string {
	content := discoveryv1.EndpointSlice{AddressType: full.AddressType, Endpoints: full.Endpoints, Ports: full.Ports}
	encoded, err := content.Marshal()
	packer := packers.Get().(*flate.Writer)
	defer packers.Put(packer)
	var packed strings.Builder
	packer.Reset(&packed)
	_, writeErr := packer.Write(encoded)
	if err := errors.Join(err, writeErr, packer.Close()); err != nil {
		panic(err) // It has been decoded, and is packed in memory.
	}
	return strings.Clone(packed.String()) // Clone drops the spare capacity.
}
