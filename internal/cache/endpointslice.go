package cache

import (
	"compress/flate"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// EndpointSlice keeps the fields that are read from the EndpointSlice of a generated Service.
type EndpointSlice struct {
	plan.Identity
	Service      string                // name of the Service
	localService unique.Handle[string] // from the label that the slice has from its Service
	Ready        bool                  // at least one endpoint is ready, as its pod is
	ports        unique.Handle[string] // see plan.PortsOf
}

func trimEndpointSlice(full *discoveryv1.EndpointSlice) (*EndpointSlice, error) {
	return &EndpointSlice{
		Identity:     plan.IdentityOf(full),
		Service:      full.Labels[discoveryv1.LabelServiceName],
		localService: unique.Make(full.Labels[v1alpha1.OwnerLabelKey]),
		Ready: slices.ContainsFunc(full.Endpoints, func(e discoveryv1.Endpoint) bool {
			return plan.Answers(&e)
		}),
		ports: plan.PortsOf(full),
	}, nil
}

// LocalService returns the key of the LocalService that the EndpointSlice claims to belong to.
func (s *EndpointSlice) LocalService() types.NamespacedName {
	return types.NamespacedName{Namespace: s.GetNamespace(), Name: s.localService.Value()}
}

// Same reports whether two states differ only in the resource version.
func (s *EndpointSlice) Same(other *EndpointSlice) bool {
	a := *s
	a.Identity = other.Identity
	return a == *other
}

// ReadyServices returns the names of the Services of a LocalService that answer: they have a ready endpoint, and of
// their named ports, each at some endpoint.
func (c *Caches) ReadyServices(ls *v1alpha1.LocalService) map[string]bool {
	objs := c.EndpointSlices.indexed(ls.Namespace, ls.Name)
	ready := make(map[string]bool, len(objs))
	for _, slice := range objs {
		ready[slice.Service] = true
	}
	named := plan.NamedPorts(ls)
	if len(named) == 0 {
		return ready
	}
	ports := map[string]string{} // by Service; pods with other ports are in other EndpointSlices
	for _, slice := range objs {
		ports[slice.Service] += slice.ports.Value()
	}
	maps.DeleteFunc(ready, func(service string, _ bool) bool {
		return slices.ContainsFunc(named, func(name string) bool {
			return !strings.Contains(","+ports[service], ","+name+"=")
		})
	})
	return ready
}

// PortNumbers returns the numbers that the pods of a headless LocalService have for ports whose targetPort is a name.
func (c *Caches) PortNumbers(ls *v1alpha1.LocalService) plan.PortNumbers {
	if plan.HasClusterIPs(ls) || !slices.ContainsFunc(ls.Spec.Ports, func(port v1alpha1.ServicePort) bool {
		return port.TargetPort.StrVal != ""
	}) {
		return nil
	}
	published := map[unique.Handle[string]]bool{}
	for _, slice := range c.EndpointSlices.indexed(ls.Namespace, ls.Name) {
		published[slice.ports] = true
	}
	for _, slice := range c.HostnameSlices.indexed(ls.Namespace, ls.Name) {
		published[slice.Ports] = true
	}
	numbers := plan.PortNumbers{}
	for ports := range published {
		for port := range strings.SplitSeq(ports.Value(), ",") {
			if name, text, isPort := strings.Cut(port, "="); isPort {
				number, _ := strconv.ParseInt(text, 10, 32) // It was written by PortsOf.
				numbers.Add(name, int32(number))
			}
		}
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
