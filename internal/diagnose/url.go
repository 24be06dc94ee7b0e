package diagnose

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// ErrEndpointsNeeded says that the number of a port is known only to the pods: the Service is headless, so that its
// clients connect to the pods' own ports, and the LocalService gives that port by name.
var ErrEndpointsNeeded = errors.New("its number is known only from the EndpointSlices")

// Port finds a port of a LocalService by its name or number; for "", the first one, or the first of protocol TCP if
// there is any. Its error lists what there is. A headless LocalService without ports has any.
func Port(ls *v1alpha1.LocalService, port string) (*v1alpha1.ServicePort, error) {
	ports := byProtocol(ls.Spec.Ports)
	number, err := strconv.ParseUint(port, 10, 16)
	isNumber := err == nil && number > 0
	if len(ports) == 0 {
		if !isNumber {
			return nil, fmt.Errorf("LocalService %s/%s names no ports: give the number of the pods' port with "+
				"--port", ls.Namespace, ls.Name)
		}
		return &v1alpha1.ServicePort{Port: int32(number)}, nil
	}
	for i := range ports {
		if p := &ports[i]; port == "" || p.Name == port || isNumber && p.Port == int32(number) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("LocalService %s/%s has no port %s: choose one of "+
		"%s", ls.Namespace, ls.Name, port, PortNames(ls))
}

// byProtocol are ports with those of TCP first, otherwise in their order.
func byProtocol(ports []v1alpha1.ServicePort) []v1alpha1.ServicePort {
	notTCP := func(p v1alpha1.ServicePort) int {
		if protocol(&p) == corev1.ProtocolTCP {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(ports), func(a,
		b v1alpha1.ServicePort) int {
		return cmp.Compare(notTCP(a), notTCP(b))
	})
}

// PortNames lists the ports of a LocalService for people.
func PortNames(ls *v1alpha1.LocalService) string {
	var list []string
	for i := range ls.Spec.Ports {
		p := &ls.Spec.Ports[i]
		item := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			item = p.Name + " (" + item + ")"
		}
		list = append(list, item)
	}
	return strings.Join(list, ", ")
}

// URL is where the pods of a LocalService on a node answer, for clients inside the cluster. The domain is that of the
// cluster's DNS; without it, the URL has the short name that every cluster resolves. The EndpointSlices are those of
// the node's Service, and matter only where URL returns ErrEndpointsNeeded without them.
func URL(ls *v1alpha1.LocalService, node string, port *v1alpha1.ServicePort, domain string,
	endpointSlices []discoveryv1.EndpointSlice) (string, error) {
	number, err := clientPort(ls, port, endpointSlices)
	if err != nil {
		return "", err
	}
	host := naming.ServiceName(ls.Name, node) + "." + ls.Namespace
	if domain != "" {
		host += ".svc." + domain
	}
	return scheme(port) + "://" + net.JoinHostPort(host, strconv.Itoa(int(number))), nil
}

// clientPort is the number that clients connect to.
func clientPort(ls *v1alpha1.LocalService, port *v1alpha1.ServicePort,
	endpointSlices []discoveryv1.EndpointSlice) (int32, error) {
	switch {
	case ls.Spec.ClusterIP != corev1.ClusterIPNone:
		return port.Port, nil
	case port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal == 0, port.TargetPort == intstr.FromString(""):
		return port.Port, nil
	case port.TargetPort.Type == intstr.Int:
		return port.TargetPort.IntVal, nil
	}
	for i := range endpointSlices {
		for _, p := range endpointSlices[i].Ports {
			if p.Port != nil && (p.Name == nil && port.Name == "" || p.Name != nil && *p.Name == port.Name) {
				return *p.Port, nil
			}
		}
	}
	return 0, fmt.Errorf("LocalService %s/%s is headless, so that clients connect to the pods' own port %s: %w",
		ls.Namespace, ls.Name, port.TargetPort.StrVal, ErrEndpointsNeeded)
}

// scheme is the URL scheme of what speaks on a port, as far as its name and protocol tell.
func scheme(port *v1alpha1.ServicePort) string {
	if p := protocol(port); p != corev1.ProtocolTCP {
		return strings.ToLower(string(p))
	}
	if port.AppProtocol != nil {
		switch p := strings.ToLower(*port.AppProtocol); p {
		case "http", "https":
			return p
		case "kubernetes.io/ws":
			return "ws"
		case "kubernetes.io/wss":
			return "wss"
		}
	}
	if port.Name == "https" {
		return "https"
	}
	return "http"
}

func protocol(port *v1alpha1.ServicePort) corev1.Protocol {
	return cmp.Or(port.Protocol, corev1.ProtocolTCP)
}
