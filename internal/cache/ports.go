package cache

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unique"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

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
