package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	publishedNodes = 5000
	// publishTimeout bounds one publication, with what is measured then.
	publishTimeout = 20 * time.Minute
	// endpointsPerSlice is how many endpoints Kubernetes puts into an EndpointSlice.
	endpointsPerSlice = 100
	// answersEvery is of how many nodes one is asked for, to see when the names answer: each EndpointSlice has some.
	answersEvery = 50
	mostObjects  = 10000 // that a cluster is known to support
	endpoints    = "endpointslices"
)

var (
	copyWrites = ours(endpoints, "create", "update", "patch", "delete", "deletecollection")
	copies     = succeeded(copyWrites)
)

// bySource picks what Kubernetes did to the EndpointSlices of the scene.
func (s *scene) bySource(rs framework.Requests) framework.Requests {
	return rs.By("kube-controller-manager").Writes().Resource(endpoints).Namespace(s.name).Where(framework.Succeeded)
}

// startEndpointSlices has Kubernetes publish the pods of Services, in a kube-controller-manager that does nothing else,
// so that its CPU time shows what that costs. It knows all pods when this returns. Whoever calls it kills it.
func (s *scene) startEndpointSlices(ctx context.Context) *component {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	mark := s.Audit.Mark()
	k := s.startComponent("kube-controller-manager", "--kubeconfig", s.Kubeconfig, "--leader-elect=false",
		"--secure-port=0", "--controllers=endpointslice-controller", "--concurrent-service-endpoint-syncs=50",
		"--kube-api-qps=10000", "--kube-api-burst=10000", "--flex-volume-plugin-dir", s.Dir())
	services, probe := s.Kube.CoreV1().Services(s.name), framework.NewForeignService("probe", nil)
	try(services.Create(ctx, probe, metav1.CreateOptions{}))
	try(s.await(whileRuns(ctx, k.Process), mark, 1, s.bySource))
	return k
}

// inMode is the change to another mode.
func inMode(mode v1alpha1.Mode) framework.Change {
	return func(ls *v1alpha1.LocalService) { ls.Spec.Mode = mode }
}

// publication is the names of the nodes of a scene in some LocalServices, and what it took to publish them.
type publication struct {
	*scene
	observed
	mode                  v1alpha1.Mode
	apps                  int
	dns                   *coreDNS
	sources               time.Duration // until Kubernetes had written its last EndpointSlice
	published, answered   time.Duration // until the last EndpointSlice was written, and until the names answered
	stored                float64       // MB in etcd, more than before
	before, after         memory        // of the API server
	controller, dnsMemory memory
}

func (p *publication) names() int { return p.apps * len(p.nodes) }

// name is the i-th name, and the address of the pod that it must lead to.
func (p *publication) name(i int) (name, address string) {
	app, node := fmt.Sprintf("app%03d", i/len(p.nodes)), p.nodes[i%len(p.nodes)]
	if p.mode == v1alpha1.ModeHostnames {
		return node + "." + app + p.zone(), podAddress(i)
	}
	return app + "-" + node + p.zone(), podAddress(i)
}

// noName is a name that does not exist.
func (p *publication) noName(i int) (name, answer string) {
	if p.mode == v1alpha1.ModeHostnames && i%2 == 0 {
		return fmt.Sprintf("no-node-%d.app000%s", i, p.zone()), nxDomain
	}
	return fmt.Sprintf("app000-no-node-%d%s", i, p.zone()), nxDomain
}

func (p *publication) zone() string { return "." + p.scene.name + ".svc.cluster.local." }

// withPublication publishes the names of the scene's nodes in some LocalServices, of which each has a pod on each node,
// and calls use.
func (s *scene) withPublication(ctx context.Context, mode v1alpha1.Mode, apps int,
	use func(ctx context.Context, p *publication)) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	state := podLabelled
	if mode == v1alpha1.ModeHostnames {
		state = podRunning
	}
	for i := range apps {
		s.seedPods(ctx, fmt.Sprintf("app%03d", i), len(s.nodes), state)
	}
	endpointSlices := s.startEndpointSlices(ctx)
	defer endpointSlices.Kill()
	p := &publication{scene: s, mode: mode, apps: apps, dns: s.startCoreDNS(ctx)}
	defer func() { p.dns.Kill() }()
	progress("%d LocalServices, mode %s: the pods are in place", apps, mode)
	stored := s.stored(ctx)
	p.before = s.apiserver().memory()
	s.withController(whileRuns(ctx, endpointSlices.Process), func(ctx context.Context, c *controller) {
		p.observed = s.observe(ctx, c, func(mark framework.Mark) { p.publish(ctx, mark) })
		progress("%d LocalServices, mode %s: published after %v; written: %v", apps, mode, p.published,
			p.requests.ByController().Writes())
		p.stored, p.after = s.stored(ctx)-stored, s.apiserver().memory()
		p.controller, p.dnsMemory = s.settledMemory(ctx, c.usage), p.dns.memory()
		use(ctx, p)
	})
}

// publish creates the LocalServices, and waits until the names answer.
func (p *publication) publish(ctx context.Context, mark framework.Mark) {
	slices, written := p.apps*p.slicesEach(), copies
	if p.mode == v1alpha1.ModeServices {
		slices, written = p.names(), p.bySource
	}
	p.createLocalServices(ctx, "app", p.apps, inMode(p.mode))
	wrote := try(p.await(ctx, mark, slices, written))
	p.dns.await(ctx, p.names()/answersEvery, func(i int) (string, string) { return p.name(i * answersEvery) })
	answered, requests := time.Now(), p.Audit.Since(mark)
	began := requests.Resource("localservices").Verb("create").First()
	p.sources = p.bySource(requests).Last().Sub(began)
	p.published, p.answered = wrote.Last().Sub(began), answered.Sub(began)
}

// slicesEach is how many EndpointSlices the pods of a LocalService need.
func (p *publication) slicesEach() int {
	return (len(p.nodes) + endpointsPerSlice - 1) / endpointsPerSlice
}

// written is how many objects the controller has written, and all those together that are there now.
func (p *publication) written() (byController, all float64) {
	byController = p.count(serviceCreates) + p.count(otherWrites) + p.count(copyWrites)
	return byController, byController + p.count(p.bySource)
}

// stored is how many MB etcd uses.
func (c *cluster) stored(ctx context.Context) float64 {
	return float64(try(c.etcd.Status(ctx, c.etcd.Endpoints()[0])).DbSizeInUse) / 1e6
}

// measurePublished measures row 12: both modes with a few LocalServices, and mode Hostnames with many.
func measurePublished(ctx context.Context, b *bench) {
	measure := func(mode v1alpha1.Mode, apps int) (done *publication) {
		b.withScene(ctx, b.n(publishedNodes), func(s *scene) {
			s.withPublication(ctx, mode, apps, func(ctx context.Context, p *publication) {
				asked := p.dns.ask(ctx, p.names(), p.name)
				what := fmt.Sprintf("%d LocalServices × %d nodes, mode %s: wrong answers", apps, len(s.nodes), mode)
				b.report.count(12, what, float64(asked.wrong), 0)
				done = p
			})
		})
		return done
	}
	few := b.n(4)
	services, hostnames := measure(v1alpha1.ModeServices, few), measure(v1alpha1.ModeHostnames, few)
	b.report.add(12, hostnames.checks(services)...)
	many := measure(v1alpha1.ModeHostnames, b.n(100))
	b.report.add(12, many.checks(many)...)
	byController, all := many.written()
	b.report.add(12, check{what: many.what("objects written by the controller"), ours: byController,
		note: fmt.Sprintf("%.0f with the EndpointSlices that Kubernetes writes", all)}.atMost(mostObjects))
	for _, p := range []*publication{hostnames, many} {
		byController, _ := p.written()
		b.report.count(12, p.what("writes of Services and EndpointSlices"), byController,
			float64(p.apps*(2+p.slicesEach())))
	}
}

func (p *publication) what(what string) string {
	return fmt.Sprintf("%d LocalServices × %d nodes: %s", p.apps, len(p.nodes), what)
}

// checks compare a publication with another, or report it alone.
func (p *publication) checks(other *publication) (checks []check) {
	compare := func(what, unit, note string, value func(p *publication) float64) {
		c := check{what: p.what(what), unit: unit, ours: value(p), note: strings.TrimPrefix(note, "; ")}
		if other != p {
			c = compareCosts(p.what(what), unit, value(p), value(other), "mode "+string(other.mode))
			c.note += note
		}
		checks = append(checks, c)
	}
	compare("all names published", "s", fmt.Sprintf("; Kubernetes' own EndpointSlices after %.2f s",
		p.sources.Seconds()),
		func(p *publication) float64 { return p.published.Seconds() })
	compare("CoreDNS answers", "s", fmt.Sprintf("; asked for every %dth name", answersEvery),
		func(p *publication) float64 { return p.answered.Seconds() })
	compare("objects", "", "", func(p *publication) float64 { _, all := p.written(); return all })
	compare("etcd", "MB", "; more than with the pods and nodes alone", func(p *publication) float64 { return p.stored })
	compare("API server", "MB", fmt.Sprintf("; before: %v, after: %v", p.before, p.after),
		func(p *publication) float64 { return p.after.resident })
	compare("controller", "MB", "; "+p.controller.String(),
		func(p *publication) float64 { return p.controller.resident })
	compare("CPU of the controller", "s", "", func(p *publication) float64 { return p.cpu.Seconds() })
	compare("CoreDNS", "MB", "; without the program file", func(p *publication) float64 { return p.dnsMemory.own() })
	return checks
}
