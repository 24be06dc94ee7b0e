package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	publishedNodes    = 5000
	fewApps, manyApps = 4, 100
	// publishTimeout bounds one publication, with what is measured then.
	publishTimeout = 20 * time.Minute
	// endpointsPerSlice is how many endpoints Kubernetes puts into an EndpointSlice.
	endpointsPerSlice = 100
	// answersEvery is of how many nodes one is asked for, to see when the names answer: each EndpointSlice has some.
	answersEvery = 50
	mostObjects  = 10000 // that a cluster is known to support
	readySamples = 300
	readyLimit   = 20 // milliseconds more than Kubernetes takes
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

// measureHostnames measures row 10: both modes with a few LocalServices, and mode Hostnames with many.
func measureHostnames(ctx context.Context, b *bench) {
	services := b.publish(ctx, v1alpha1.ModeServices, fewApps)
	hostnames := b.publish(ctx, v1alpha1.ModeHostnames, fewApps)
	b.report.add(10, hostnames.checks(services)...)
	many := b.publish(ctx, v1alpha1.ModeHostnames, b.n(manyApps))
	b.report.add(10, many.checks(many)...)
	byController, all := many.written()
	b.report.add(10, check{what: many.what("objects written by the controller"), ours: byController,
		note: fmt.Sprintf("%.0f with the EndpointSlices that Kubernetes writes", all)}.atMost(mostObjects))
	for _, p := range []*publication{hostnames, many} {
		byController, _ := p.written()
		b.report.count(10, p.what("writes of Services and EndpointSlices"), byController,
			float64(p.apps*(2+p.slicesEach())))
	}
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
	controller, dnsMemory memory
}

func (p *publication) names() int { return p.apps * len(p.nodes) }

// slicesEach is how many EndpointSlices the pods of a LocalService need.
func (p *publication) slicesEach() int {
	return (len(p.nodes) + endpointsPerSlice - 1) / endpointsPerSlice
}

// name returns the i-th name, and the address of the pod that it must lead to.
func (p *publication) name(i int) (name, address string) {
	app, node := fmt.Sprintf("app%03d", i/len(p.nodes)), p.nodes[i%len(p.nodes)]
	name = app + "-" + node
	if p.mode == v1alpha1.ModeHostnames {
		name = node + "." + app
	}
	return name + "." + p.scene.name + ".svc.cluster.local.", podAddress(i)
}

// publish publishes the names of a new scene's nodes in some LocalServices, each of which has a pod on each node.
func (b *bench) publish(ctx context.Context, mode v1alpha1.Mode, apps int) (p *publication) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	b.withScene(ctx, b.n(publishedNodes), func(s *scene) {
		p = &publication{scene: s, mode: mode, apps: apps}
		var pods []*corev1.Pod
		state := map[v1alpha1.Mode]podState{v1alpha1.ModeServices: podLabelled,
			v1alpha1.ModeHostnames: podRunning}[mode]
		for i := range apps {
			pods = append(pods, s.seedPods(ctx, fmt.Sprintf("app%03d", i), len(s.nodes), state)...)
		}
		slices := s.startEndpointSlices(ctx)
		defer slices.Kill()
		p.dns = s.startCoreDNS(ctx)
		defer p.dns.Kill()
		progress("row 10: %d LocalServices, mode %s: the pods are in place", apps, mode)
		s.withController(whileRuns(ctx, slices.Process), func(ctx context.Context, c *controller) {
			p.measure(ctx, c)
			if mode == v1alpha1.ModeHostnames && apps == fewApps {
				p.measureReady(ctx, pods)
			}
		})
	})
	return p
}

// measure measures the time and the sizes, and asks for every name.
func (p *publication) measure(ctx context.Context, c *controller) {
	stored := p.cluster.stored(ctx)
	p.observed = p.observe(ctx, c, func(mark framework.Mark) { p.fanOut(ctx, mark) })
	progress("row 10: published after %v; written: %v", p.published, p.requests.ByController().Writes())
	p.stored = p.cluster.stored(ctx) - stored
	p.controller, p.dnsMemory = p.settledMemory(ctx, c.usage), p.dns.memory()
	what := fmt.Sprintf("%d LocalServices × %d nodes, mode %s: wrong answers", p.apps, len(p.nodes), p.mode)
	p.report.count(10, what, float64(p.dns.wrong(ctx, p.names(), p.name)), 0)
}

// fanOut creates the LocalServices, and waits until the names answer.
func (p *publication) fanOut(ctx context.Context, mark framework.Mark) {
	slices, written := p.apps*p.slicesEach(), copies
	if p.mode == v1alpha1.ModeServices {
		slices, written = p.names(), p.bySource
	}
	p.createLocalServices(ctx, "app", p.apps, func(ls *v1alpha1.LocalService) { ls.Spec.Mode = p.mode })
	wrote := try(p.await(ctx, mark, slices, written))
	p.dns.await(ctx, p.names()/answersEvery, func(i int) (string, string) { return p.name(i * answersEvery) })
	answered, requests := time.Now(), p.Audit.Since(mark)
	began := requests.Resource("localservices").Verb("create").First()
	p.sources = p.bySource(requests).Last().Sub(began)
	p.published, p.answered = wrote.Last().Sub(began), answered.Sub(began)
}

// measureReady measures how much later than Kubernetes' EndpointSlice its copy is written, after a pod became ready.
func (p *publication) measureReady(ctx context.Context, pods []*corev1.Pod) {
	var copied, kubernetes samples // milliseconds
	p.awaitReady(ctx, p.shorter(settleTime))
	n := p.n(readySamples)
	for sample := range n {
		pod := pods[sample*len(p.nodes)/n] // Of all EndpointSlices of the first LocalService.
		for _, ready := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
			for i := range pod.Status.Conditions {
				if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
					c.Status = ready
				}
			}
			mark := p.Audit.Mark()
			try(p.Kube.CoreV1().Pods(p.scene.name).UpdateStatus(ctx, pod, metav1.UpdateOptions{}))
			published := try(p.await(ctx, mark, 1, copies)).Last()
			if ready == corev1.ConditionTrue {
				requests := p.Audit.Since(mark)
				began := requests.Resource("pods/status").Last()
				copied = append(copied, milliseconds(published.Sub(began)))
				kubernetes = append(kubernetes, milliseconds(p.bySource(requests).Last().Sub(began)))
			}
		}
	}
	for _, q := range []float64{0.5, 0.99} {
		p.report.add(10, check{
			what: p.what(fmt.Sprintf("a pod becomes ready: copied after Kubernetes' own EndpointSlice, p%.0f", 100*q)),
			unit: "ms", ours: copied.quantile(q) - kubernetes.quantile(q),
			note: fmt.Sprintf("%.1f instead of %.1f, of %d pods", copied.quantile(q), kubernetes.quantile(q), n),
		}.atMost(readyLimit))
	}
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
	compare("controller", "MB", "; "+p.controller.String(),
		func(p *publication) float64 { return p.controller.resident })
	compare("CPU of the controller", "s", "", func(p *publication) float64 { return p.cpu.Seconds() })
	compare("CoreDNS", "MB", "; without the program file", func(p *publication) float64 { return p.dnsMemory.own() })
	return checks
}
