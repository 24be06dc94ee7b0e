package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	askers         = 8 // clients that ask at the same time
	questions      = 200000
	askTimeout     = 5 * time.Second
	nxDomain       = "NXDOMAIN"
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

// question is the i-th question, and the right answer.
type question func(i int) (name, answer string)

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

func (d *coreDNS) clients() (clients []func(name string) string) {
	for range askers {
		clients = append(clients, d.client())
	}
	return clients
}

// await asks until all of n questions have the right answer.
func (d *coreDNS) await(ctx context.Context, n int, q question) {
	clients := d.clients()
	must(parallel(ctx, askers, n, func(ctx context.Context, worker, i int) error {
		name, want := q(i)
		for got := clients[worker](name); got != want; got = clients[worker](name) {
			if err := pause(ctx, repeatInterval); err != nil {
				return fmt.Errorf("CoreDNS answers %q for %s instead of %q: %w", got, name, want, err)
			}
		}
		return nil
	}))
}

// asked is what came of many questions.
type asked struct {
	rate  float64 // questions a second
	took  samples // milliseconds
	wrong int     // answers, with those that did not come
}

// ask asks n questions, each client one after the other.
func (d *coreDNS) ask(ctx context.Context, n int, q question) (a asked) {
	clients, each, began := d.clients(), make([]samples, askers), time.Now()
	var wrong atomic.Int64
	must(parallel(ctx, askers, n, func(_ context.Context, worker, i int) error {
		name, want := q(i)
		asked := time.Now()
		got := clients[worker](name)
		each[worker] = append(each[worker], milliseconds(time.Since(asked)))
		if got != want && wrong.Add(1) == 1 {
			progress("CoreDNS answers %q for %s instead of %q", got, name, want)
		}
		return nil
	}))
	a.rate, a.wrong = float64(n)/time.Since(began).Seconds(), int(wrong.Load())
	for _, took := range each {
		a.took = append(a.took, took...)
	}
	return a
}

// dnsLoad is what CoreDNS does with the names of a mode.
type dnsLoad struct {
	memory           memory
	existing, others asked
	cpu              time.Duration
}

// measureDNS measures row 15: a restart of CoreDNS with the names of one LocalService in each mode.
func measureDNS(ctx context.Context, b *bench) {
	load := map[v1alpha1.Mode]dnsLoad{}
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeServices, v1alpha1.ModeHostnames} {
		b.withScene(ctx, b.n(publishedNodes), func(s *scene) {
			s.withPublication(ctx, mode, 1, func(ctx context.Context, p *publication) {
				l := p.loadDNS(ctx)
				load[mode] = l
				what := fmt.Sprintf("%d names, mode %s: ", p.names(), mode)
				b.report.count(15, what+"wrong answers", float64(l.existing.wrong), 0)
				b.report.count(15, what+"answers other than NXDOMAIN for names that do not exist",
					float64(l.others.wrong), 0)
			})
		})
	}
	hostnames, services := load[v1alpha1.ModeHostnames], load[v1alpha1.ModeServices]
	compare := func(what, unit string, value func(l dnsLoad) float64) {
		b.report.add(15, compareCosts(what, unit, value(hostnames), value(services), "mode Services"))
	}
	compare("questions answered", "/s", func(l dnsLoad) float64 { return l.existing.rate })
	compare("answer, p50", "ms", func(l dnsLoad) float64 { return l.existing.took.median() })
	compare("answer, p99", "ms", func(l dnsLoad) float64 { return l.existing.took.quantile(0.99) })
	compare("NXDOMAIN, p99", "ms", func(l dnsLoad) float64 { return l.others.took.quantile(0.99) })
	compare("CPU of CoreDNS for a question", "ms", func(l dnsLoad) float64 { return milliseconds(l.cpu) })
	compare("memory of CoreDNS, without the program file", "MB", func(l dnsLoad) float64 { return l.memory.own() })
}

// loadDNS asks a CoreDNS that is started with all names in place.
func (p *publication) loadDNS(ctx context.Context) (l dnsLoad) {
	p.dns.Kill()
	p.dns = p.startCoreDNS(ctx)
	l.memory = p.settledMemory(ctx, p.dns.usage)
	before, n := p.dns.cpu(), p.n(questions)
	l.existing = p.dns.ask(ctx, n, func(int) (string, string) { return p.name(rand.IntN(p.names())) })
	l.cpu = (p.dns.cpu() - before) / time.Duration(n)
	l.others = p.dns.ask(ctx, n/10, p.noName)
	return l
}
