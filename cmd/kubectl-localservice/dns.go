package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

const (
	dnsTimeout         = time.Minute      // for all names
	dnsReplyTimeout    = 10 * time.Second // for those on one connection
	dnsConnections     = 8                // at a time
	namesPerConnection = 32               // dnsmasq answers 100 queries on one.
	dnsPort            = 53               // of the Service
)

// askDNS adds to lists the answers of the cluster's DNS for their names.
func (o *reader) askDNS(ctx context.Context, lists []*diagnose.NodeList, service string) error {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	server, address, err := o.connectDNS(ctx, service)
	if err != nil {
		return fmt.Errorf("--dns: %w", err)
	}
	known := "kubernetes.default.svc." + o.clusterDomain // It exists in every cluster.
	replies := map[string]*diagnose.DNSReply{known: {}}
	for _, list := range lists {
		for _, n := range list.Items {
			if n.DNSName != "" {
				replies[n.DNSName] = &diagnose.DNSReply{}
			}
		}
	}
	askForAll(ctx, address, replies)
	if !slices.ContainsFunc(slices.Collect(maps.Values(replies)), func(reply *diagnose.DNSReply) bool {
		return len(reply.Addresses) > 0 || reply.Failure != ""
	}) {
		return fmt.Errorf("--dns: the cluster's DNS (pod %s) has no address for any of the names, nor for %s (it "+
			"says %s): either %s is not the domain of the cluster, which the line \"search\" of /etc/resolv.conf in "+
			"any pod ends with (set --cluster-domain), or the server has not reached the API server", server.Pod,
			known, replies[known].Code, o.clusterDomain)
	}
	for _, list := range lists {
		diagnose.AddDNS(list, server, replies)
	}
	return nil
}

// connectDNS finds a pod of the cluster's DNS server and returns an address on this machine that leads to it.
func (c *cluster) connectDNS(ctx context.Context, service string) (server diagnose.DNSServer, at string, err error) {
	namespace, name, found := strings.Cut(service, "/")
	if !found || namespace == "" || name == "" {
		return server, "", fmt.Errorf("--dns-service is %q: it must be namespace/name", service)
	}
	list, err := c.kube.DiscoveryV1().EndpointSlices(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return server, "", err
	}
	podName, port := dnsPod(list.Items)
	if podName == "" {
		return server, "", fmt.Errorf("no pod of Service %s is ready at TCP port %d. If it is the one of your cluster's "+
			"DNS, that is down: %s get deployments,pods -n %s. Otherwise, name that by --dns-service. If DNS does not "+
			"run in pods (Cloud DNS for GKE, say), resolve a name from a pod instead", service, dnsPort, c.kubectl,
			namespace)
	}
	if at, err = c.forward(ctx, namespace, podName, port); err != nil {
		err = fmt.Errorf("forward a port to pod %s/%s: %w", namespace, podName, err)
	}
	return diagnose.DNSServer{Service: service, Pod: namespace + "/" + podName}, at, err
}

// dnsPod returns the first ready pod, and its port for DNS by TCP; "" if there is none.
func dnsPod(endpointSlices []discoveryv1.EndpointSlice) (pod string, port int32) {
	for i := range endpointSlices {
		for _, p := range endpointSlices[i].Ports {
			// Not a port for metrics. The number is the pod's, so if it is not 53, the name decides.
			isDNS := ptr.Deref(p.Port, 0) == dnsPort || strings.HasPrefix(ptr.Deref(p.Name, ""), "dns")
			if ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP && isDNS {
				port = ptr.Deref(p.Port, dnsPort)
			}
		}
		for _, e := range endpointSlices[i].Endpoints {
			if port != 0 && ptr.Deref(e.Conditions.Ready, true) && e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
				return e.TargetRef.Name, port
			}
		}
	}
	return "", 0
}

// askForAll asks a server for the addresses of names, many at a time, and fills in the replies.
func askForAll(ctx context.Context, server string, replies map[string]*diagnose.DNSReply) {
	var asking errgroup.Group
	asking.SetLimit(dnsConnections)
	for names := range slices.Chunk(slices.Collect(maps.Keys(replies)), namesPerConnection) {
		asking.Go(func() error {
			askOnConnection(ctx, server, names, replies)
			return nil
		})
	}
	_ = asking.Wait() // Failures are in the replies.
}

// askOnConnection asks for names on one connection, all at once.
func askOnConnection(ctx context.Context, server string, names []string, replies map[string]*diagnose.DNSReply) {
	ctx, cancel := context.WithTimeout(ctx, dnsReplyTimeout)
	defer cancel()
	pending := map[uint16]*diagnose.DNSReply{} // by the ID of the query
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", server)
	if err == nil {
		defer connection.Close()
		defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	}
	conn := &dns.Conn{Conn: connection}
	for _, name := range names {
		for _, t := range []uint16{dns.TypeA, dns.TypeAAAA} {
			question := new(dns.Msg).SetQuestion(dns.Fqdn(name), t)
			question.Id = uint16(len(pending))
			pending[question.Id] = replies[name]
			if err == nil {
				err = conn.WriteMsg(question)
			}
		}
	}
	for err == nil && len(pending) > 0 {
		var reply *dns.Msg
		if reply, err = conn.ReadMsg(); err == nil && pending[reply.Id] != nil {
			addReply(pending[reply.Id], reply)
			delete(pending, reply.Id)
		}
	}
	for _, reply := range pending {
		reply.Failure = cmp.Or(ctx.Err(), err).Error()
	}
}

// addReply adds the server's reply about the addresses of one family.
func addReply(to *diagnose.DNSReply, reply *dns.Msg) {
	if to.Code == "" || reply.Rcode != dns.RcodeSuccess {
		to.Code = dns.RcodeToString[reply.Rcode]
	}
	to.Truncated = to.Truncated || reply.Truncated
	for _, record := range reply.Answer {
		switch record := record.(type) {
		case *dns.A:
			to.Addresses = append(to.Addresses, record.A.String())
		case *dns.AAAA:
			to.Addresses = append(to.Addresses, record.AAAA.String())
		}
	}
}
