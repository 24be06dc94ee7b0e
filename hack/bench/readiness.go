package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	readySamples   = 300
	readyLimit     = 20  // milliseconds more than Kubernetes takes
	copiesLimit    = 1.1 // of the writes of Kubernetes
	rollingPerTime = 50  // pods a second that are replaced in a rolling restart
	restartTime    = 100 * time.Millisecond
)

// measureReadiness measures rows 13 and 14: pods of one LocalService become ready, one after the other and in a rolling
// restart.
func measureReadiness(ctx context.Context, b *bench) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	b.withScene(ctx, b.n(publishedNodes), func(s *scene) {
		k := kubelets{s, s.seedPods(ctx, "app000", len(s.nodes), podRunning),
			try(kubernetes.NewForConfig(s.protobuf(kubeletAgent)))}
		endpointSlices := s.startEndpointSlices(ctx)
		defer endpointSlices.Kill()
		s.withController(whileRuns(ctx, endpointSlices.Process), func(ctx context.Context, p *controller) {
			mark := s.Audit.Mark()
			s.createLocalServices(ctx, "app", 1, inMode(v1alpha1.ModeHostnames))
			try(s.await(ctx, mark, (len(s.nodes)+endpointsPerSlice-1)/endpointsPerSlice, copies))
			s.awaitReady(ctx, 2*time.Second)
			if s.opts.wants(13) {
				k.measureReady(ctx)
			}
			if s.opts.wants(14) {
				k.measureRollingRestart(ctx, p, endpointSlices)
			}
		})
	})
}

// kubelets report the status of pods.
type kubelets struct {
	*scene
	pods   []*corev1.Pod
	client kubernetes.Interface
}

// tell reports a pod as ready or not, with an address.
func (k *kubelets) tell(ctx context.Context, i int, ready corev1.ConditionStatus, address string) error {
	pod := k.pods[i]
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.Status = ready
		}
	}
	_, err := k.client.CoreV1().Pods(k.scene.name).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// measureReady measures row 13: how much later our copy is written than Kubernetes' EndpointSlice, from when a pod is
// ready on.
func (k *kubelets) measureReady(ctx context.Context) {
	var all, more, kubernetes samples // milliseconds
	n := k.n(readySamples)
	for sample := range n {
		i := sample * len(k.pods) / n // Of all EndpointSlices.
		for _, ready := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue} {
			mark := k.Audit.Mark()
			must(k.tell(ctx, i, ready, k.pods[i].Status.PodIP))
			published := try(k.await(ctx, mark, 1, copies)).Last()
			requests := k.Audit.Since(mark)
			source := k.bySource(requests).Last()
			if ready == corev1.ConditionTrue {
				began := requests.By(kubeletAgent).Last()
				all = append(all, milliseconds(published.Sub(began)))
				kubernetes = append(kubernetes, milliseconds(source.Sub(began)))
				more = append(more, milliseconds(published.Sub(source)))
			}
		}
	}
	what := fmt.Sprintf("a pod of %d becomes ready: until its name is published, more than until Kubernetes has "+
		"published the pod, ", len(k.pods))
	row := func(name string, q float64) check {
		return check{what: what + name, unit: "ms", ours: all.quantile(q) - kubernetes.quantile(q),
			note: fmt.Sprintf("%.1f instead of %.1f; of %d pods, each by itself %.1f", all.quantile(q),
				kubernetes.quantile(q), len(all), more.quantile(q))}.atMost(readyLimit)
	}
	k.report.add(13, row("p50", 0.5), row("p99", 0.99))
}

// measureRollingRestart measures row 14. At the API a rolling update of a DaemonSet looks like this: of a few pods at a
// time the old one is not ready any more, and then there is one on the same node with another address.
func (k *kubelets) measureRollingRestart(ctx context.Context, p *controller, endpointSlices *component) {
	before := endpointSlices.cpu()
	o := k.observe(ctx, p, func(framework.Mark) {
		must(paced(ctx, loadWorkers, len(k.pods), rollingPerTime, func(ctx context.Context, i int) error {
			if err := k.tell(ctx, i, corev1.ConditionFalse, k.pods[i].Status.PodIP); err != nil {
				return err
			}
			if err := pause(ctx, restartTime); err != nil {
				return err
			}
			return k.tell(ctx, i, corev1.ConditionTrue, podAddress(len(k.pods)+i))
		}))
	})
	cpu := endpointSlices.cpu() - before
	what := fmt.Sprintf("rolling restart of %d pods: ", len(k.pods))
	writes := compareCosts(what+"EndpointSlices written", "", o.count(copyWrites), o.count(k.bySource), "Kubernetes")
	used := compareCosts(what+"CPU", "s", o.cpu.Seconds(), cpu.Seconds(), "kube-controller-manager")
	used.note += fmt.Sprintf("; %d pods a second", rollingPerTime)
	k.report.add(14, writes.atMostTimes(copiesLimit), used)
	k.report.count(14, what+"writes refused", o.count(copyWrites)-o.count(copies), 0)
	k.report.count(14, what+"EndpointSlices that are not as Kubernetes has them", k.differingAtLast(ctx), 0)
}

// differingAtLast is what differing becomes: on a busy machine, the last copies are written a moment later.
func (k *kubelets) differingAtLast(ctx context.Context) (n float64) {
	_ = framework.Poll(ctx, func(ctx context.Context) error {
		if n = k.differing(ctx); n > 0 {
			return errors.New("some differ")
		}
		return nil
	}) // The row reports how many still differ.
	return n
}

// differing is how many EndpointSlices of the LocalService have no copy with the same addresses.
func (k *kubelets) differing(ctx context.Context) (n float64) {
	of := func(value string) map[string]string {
		addresses := map[string]string{}
		list := metav1.ListOptions{LabelSelector: v1alpha1.HostnamesLabelKey + "=" + value}
		for _, slice := range try(k.Kube.DiscoveryV1().EndpointSlices(k.scene.name).List(ctx, list)).Items {
			var all strings.Builder
			for _, e := range slice.Endpoints {
				fmt.Fprintln(&all, e.Addresses, *e.NodeName, *e.Conditions.Ready)
			}
			addresses[strings.TrimSuffix(slice.Name, "-named")] = all.String()
		}
		return addresses
	}
	published := of(v1alpha1.HostnamesPublished)
	for name, addresses := range of(v1alpha1.HostnamesSource) {
		if published[name] != addresses {
			n++
		}
	}
	return n
}
