package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	askers         = 8 // clients that ask at the same time
	askTimeout     = 5 * time.Second
	repeatInterval = 5 * time.Millisecond // of a question that has no answer yet
)

// corefile is the usual configuration, without a cache: what is measured is the answer of the kubernetes plugin.
const corefile = `.:%s {
  bind 127.0.0.1
  errors
  kubernetes cluster.local {
    kubeconfig %s
    ttl 5
  }
}
`

// component is a part of Kubernetes that runs beside a control plane, and is measured, too.
type component struct {
	*framework.Process
	usage
}

// startComponent starts a part of the playground with a command line of its own. Whoever calls it kills it.
func (c *cluster) startComponent(name string, args ...string) *component {
	cmd := exec.Command(try(framework.PlaygroundProgram.Path()), append([]string{name}, args...)...)
	cmd.Env = []string{"HOME=" + c.Dir()}
	process := try(framework.StartProcess(cmd, syscall.SIGKILL))
	return &component{process, usageOf(process.Pid())}
}

// startEndpointSlices lets Kubernetes publish the pods of Services, in a kube-controller-manager that does nothing
// else. It knows all pods when this returns. Whoever calls it kills it.
func (s *scene) startEndpointSlices(ctx context.Context) *component {
	mark := s.Audit.Mark()
	k := s.startComponent("kube-controller-manager", "--kubeconfig", s.Kubeconfig, "--leader-elect=false",
		"--secure-port=0", "--controllers=endpointslice-controller", "--concurrent-service-endpoint-syncs=50",
		"--kube-api-qps=10000", "--kube-api-burst=10000", "--flex-volume-plugin-dir", s.Dir())
	services, probe := s.Kube.CoreV1().Services(s.name), framework.NewForeignService("probe", nil)
	try(services.Create(ctx, probe, metav1.CreateOptions{}))
	try(s.await(whileRuns(ctx, k.Process), mark, 1, s.bySource))
	return k
}

// coreDNS is a CoreDNS that answers for a cluster.
type coreDNS struct {
	*component
	address string
}

// startCoreDNS starts a CoreDNS that knows all names there are when this returns. Whoever calls it kills it.
func (s *scene) startCoreDNS(ctx context.Context) *coreDNS {
	port := try(framework.FreePort())
	file := filepath.Join(s.Dir(), "Corefile")
	must(os.WriteFile(file, fmt.Appendf(nil, corefile, port, s.Kubeconfig), 0o644))
	d := &coreDNS{s.startComponent("coredns", "-conf", file), net.JoinHostPort("127.0.0.1", port)}
	kubernetes := try(s.Kube.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})).Spec.ClusterIP
	d.await(whileRuns(ctx, d.Process), 1, func(int) (string, string) {
		return "kubernetes.default.svc.cluster.local.", kubernetes
	})
	return d
}

// question returns the i-th question, and the right answer.
type question func(i int) (name, answer string)

// ask asks n questions, each of some clients one after the other, and calls answered with each answer. It asks a
// question again until answered returns true.
func (d *coreDNS) ask(ctx context.Context, n int, q question, answered func(name, got, want string) bool) {
	clients := make([]func(name string) string, askers)
	for i := range clients {
		clients[i] = d.client()
	}
	must(parallel(ctx, askers, n, func(ctx context.Context, worker, i int) error {
		name, want := q(i)
		for got := clients[worker](name); !answered(name, got, want); got = clients[worker](name) {
			if err := pause(ctx, repeatInterval); err != nil {
				return fmt.Errorf("CoreDNS answers %q for %s instead of %q: %w", got, name, want, err)
			}
		}
		return nil
	}))
}

// client is a client of its own. What it returns asks for a name, and returns the address, or what else the answer is.
func (d *coreDNS) client() func(name string) string {
	client, conn := &dns.Client{Timeout: askTimeout}, try(dns.Dial("udp", d.address))
	return func(name string) string {
		reply, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(name, dns.TypeA), conn)
		if err != nil {
			return err.Error()
		}
		if len(reply.Answer) == 1 {
			if a, ok := reply.Answer[0].(*dns.A); ok {
				return a.A.String()
			}
		}
		return dns.RcodeToString[reply.Rcode]
	}
}

// await asks until all of n questions have the right answer.
func (d *coreDNS) await(ctx context.Context, n int, q question) {
	d.ask(ctx, n, q, func(_, got, want string) bool { return got == want })
}

// wrong asks n questions, and returns how many answers are wrong, or do not come.
func (d *coreDNS) wrong(ctx context.Context, n int, q question) int {
	var wrong atomic.Int64
	d.ask(ctx, n, q, func(name, got, want string) bool {
		if got != want && wrong.Add(1) == 1 {
			progress("CoreDNS answers %q for %s instead of %q", got, name, want)
		}
		return true
	})
	return int(wrong.Load())
}
