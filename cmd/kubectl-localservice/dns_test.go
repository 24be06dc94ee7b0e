package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// dnsServer is a DNS server on this machine, over TCP only.
type dnsServer struct {
	address string
	// records has the addresses of names, and failures the response codes of names.
	records  map[string][]string
	failures map[string]int

	mu   sync.Mutex
	most int            // questions on a connection
	asks map[string]int // questions by client
}

// newDNSServer starts a server that knows cluster.local, and refuses other domains, as CoreDNS may.
func newDNSServer(t *testing.T, records map[string][]string) *dnsServer {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dnsServer{address: listener.Addr().String(), records: records, failures: map[string]int{},
		asks: map[string]int{}}
	records["kubernetes.default.svc.cluster.local."] = []string{"10.96.0.1"}
	server := &dns.Server{Listener: listener, Handler: s}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = listener.Close() })
	return s
}

func (s *dnsServer) ServeDNS(w dns.ResponseWriter, question *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks[w.RemoteAddr().String()]++
	s.most = max(s.most, s.asks[w.RemoteAddr().String()])
	name, reply := question.Question[0].Name, new(dns.Msg).SetReply(question)
	for _, address := range s.records[name] {
		record, err := dns.NewRR(name + " 5 IN A " + address)
		if strings.Contains(address, ":") {
			record, err = dns.NewRR(name + " 5 IN AAAA " + address)
		}
		if err == nil && record.Header().Rrtype == question.Question[0].Qtype {
			reply.Answer = append(reply.Answer, record)
		}
	}
	switch {
	case !dns.IsSubDomain("cluster.local.", name) && len(s.records[name]) == 0:
		reply.Rcode = dns.RcodeRefused
	case len(s.records[name]) == 0:
		reply.Rcode = dns.RcodeNameError
	}
	if code, fails := s.failures[name]; fails {
		reply.Rcode, reply.Answer = code, nil
	}
	_ = w.WriteMsg(reply)
}

// withDNS adds a DNS server to the cluster.
func (f *fixture) withDNS(t *testing.T, s *dnsServer) {
	t.Helper()
	slice := slice("kube-dns", "dns-0!", "dns-1")
	slice.Namespace = "kube-system"
	slice.Ports = []discoveryv1.EndpointPort{
		{Name: new("dns"), Port: new(int32(5353)), Protocol: new(corev1.ProtocolUDP)},
		{Name: new("dns-tcp"), Port: new(int32(5354)), Protocol: new(corev1.ProtocolTCP)},
		{Name: new("metrics"), Port: new(int32(9153)), Protocol: new(corev1.ProtocolTCP)},
	}
	if err := f.kube.Tracker().Add(slice); err != nil {
		t.Fatal(err)
	}
	f.forward = func(_ context.Context, namespace, pod string, port int32) (string, error) {
		if namespace+"/"+pod != "kube-system/dns-1" || port != 5354 {
			return "", fmt.Errorf("there is no port %d of %s/%s", port, namespace, pod)
		}
		return s.address, nil
	}
}

func TestDNS(t *testing.T) {
	s := newDNSServer(t, map[string][]string{
		"demo-n1.default.svc.cluster.local.": {"10.96.0.1", "fd00::1"},
		"demo-n3.default.svc.cluster.local.": {"10.96.0.1"},
	})
	s.failures["demo-n5.default.svc.cluster.local."] = dns.RcodeServerFailure
	f := newFixture(t)
	f.withDNS(t, s)
	const query = "-o=jsonpath={.dns.service} {.dns.pod};" +
		"{range .items[*]}{.node} {.dns.result} {.dns.addresses} {.dns.message};{end}"
	const want = `kube-system/kube-dns kube-system/dns-1;n1 Answers ["10.96.0.1","fd00::1"] ;n2 Empty [] ;` +
		`n3 OtherNode ["10.96.0.1"] DNS answers with addresses of another node: 10.96.0.1 of n1;n4 Empty [] ;` +
		`n5 NoAnswer [] no answer from DNS, the server says SERVFAIL;`
	f.want(t, want, "", "nodes", "demo", "--dns", query)
	const table = `
NODE   SERVICE   ENDPOINTS   DNS         REASON
n1     demo-n1   2/2         Answers     
n2     demo-n2   0/1         Empty       exit code 1 (c: 5 restarts)
n3     demo-n3   0/0         OtherNode   no matching pod here (app=demo); DNS answers with addresses of another node: 10.96.0.1 of n1
n4     demo-n4   0/0         Empty       no Service; Services are being written
n5     demo-n5   0/0         NoAnswer    the name is taken by a Service without an owner (demo-n5); no answer from DNS, the server says SERVFAIL
`
	if _, stdout, stderr := f.run(t, "nodes", "demo", "--dns"); "\n"+stdout != table {
		t.Errorf("got:\n%s\nwant:%s\nbelow the table:\n%s", stdout, table, stderr)
	}
}

// TestManyNames: each connection has few queries, and no name is lost between two connections.
func TestManyNames(t *testing.T) {
	replies, records := map[string]*diagnose.DNSReply{}, map[string][]string{}
	for i := range 1000 {
		name := fmt.Sprintf("n%d.example.org", i)
		replies[name] = &diagnose.DNSReply{}
		records[name+"."] = []string{fmt.Sprintf("10.0.%d.%d", i/256, i%256)}
	}
	s := newDNSServer(t, records)
	askForAll(t.Context(), s.address, replies)
	for name, got := range replies {
		if got.Failure != "" || !slices.Equal(got.Addresses, records[name+"."]) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most != 2*namesPerConnection || len(s.asks) != (1000+namesPerConnection-1)/namesPerConnection {
		t.Errorf("%d queries on one of %d connections", s.most, len(s.asks))
	}
}

// TestNoDNS: servers that cannot be reached, that close the connection, and that never answer.
func TestNoDNS(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 2)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- connection
		}
	}()
	ask := func(ctx context.Context) string {
		reply := &diagnose.DNSReply{}
		askForAll(ctx, listener.Addr().String(), map[string]*diagnose.DNSReply{"n1": reply})
		return reply.Failure
	}
	go func() { _ = (<-accepted).(*net.TCPConn).CloseWrite() }()
	if got := ask(t.Context()); got != "EOF" {
		t.Error(got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := ask(ctx); got != "context deadline exceeded" {
		t.Error(got)
	}
	_ = listener.Close()
	if got := ask(t.Context()); !strings.Contains(got, "connection refused") {
		t.Error(got)
	}
}

// TestDNSErrors: if DNS cannot be asked, the table is there all the same.
func TestDNSErrors(t *testing.T) {
	const noService = "no pod of Service kube-system/kube-dns is ready at TCP port 53…--dns-service"
	for name, c := range map[string]struct {
		args, want string
		change     func(f *fixture)
	}{
		"watch":       {"--watch", "leave out --watch, or --dns", nil},
		"bad Service": {"--dns-service kube-dns", `--dns-service is "kube-dns": it must be namespace/name`, nil},
		"no Service": {"--dns-service kube-system/coredns", "no pod of Service kube-system/coredns is ready",
			nil},
		"down": {"", "ready at TCP port 53…that is down: kubectl get deployments,pods -n kube-system", func(f *fixture) {
			down := slice("kube-dns", "dns-0!")
			down.Namespace, down.Ports = "kube-system", nil
			_ = f.kube.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), down,
				"kube-system")
		}},
		"neither": {"", noService, func(f *fixture) {
			_ = f.kube.Tracker().Delete(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "kube-system",
				"kube-dns-x")
		}},
		"no permission to read": {"", "error: ask for the permission…--dns: pods is forbidden",
			func(f *fixture) {
				f.kube.PrependReactor("list", "endpointslices", func(a clienttesting.Action) (bool,
					runtime.Object, error) {
					return a.GetNamespace() == "kube-system", nil, forbidden
				})
			}},
		"no way to the pod": {"", "error: --dns: forward a port to pod kube-system/dns-1: broken", func(f *fixture) {
			f.forward = func(context.Context, string, string, int32) (string, error) { return "", errors.New("broken") }
		}},
		"another domain": {"--cluster-domain example.org", "nor for kubernetes.default.svc.example.org " +
			"(it says REFUSED)…set --cluster-domain", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.withDNS(t, newDNSServer(t, map[string][]string{}))
			if c.change != nil {
				c.change(f)
			}
			if code, stdout, stderr := f.run(t, strings.Fields("nodes demo --dns "+c.args)...); code != 1 ||
				!containsInOrder(stderr, c.want) || (stdout == "") != (name == "watch") {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
}
