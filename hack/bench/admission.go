package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	admissionRounds  = 3 // of each, without and with the policies by turns
	admissionNodes   = 200
	admissionPods    = 3000
	admissionTimeout = 20 * time.Minute
	schedulerAgent   = "kube-scheduler/"
	// No client-side limit: the scheduler's own, 50 requests/s, would hide what is measured.
	schedulerQPS = "10000"
)

// measureAdmission measures row 10: what the policies of artifacts/admission cost the API server, and the scheduler.
// Everything is done without and with them by turns.
func measureAdmission(ctx context.Context, b *bench) {
	ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	b.withScene(ctx, b.n(admissionNodes), func(s *scene) {
		n := b.n(admissionPods)
		s.compareAdmission(ctx, n, "pods bound by bare clients", s.bindPods)
		s.compareAdmission(ctx, n, "pods scheduled by kube-scheduler", s.schedulePods)
		s.compareAdmission(ctx, n, "status updates of labelled pods", s.updatePods)
		s.compareAdmission(ctx, n, "pods created", s.createPods)
	})
}

// admissionWork is something that the API server does for n pods, and how long it took there.
type admissionWork func(ctx context.Context, n int) time.Duration

// admissionCost is what a piece of work cost: seconds, and microseconds of the API server's CPU for each pod.
type admissionCost struct{ elapsed, cpu samples }

func (c *admissionCost) measure(ctx context.Context, s *scene, n int, work admissionWork) {
	server := s.apiserver()
	before := server.cpu()
	c.elapsed = append(c.elapsed, work(ctx, n).Seconds())
	c.cpu = append(c.cpu, (server.cpu()-before).Seconds()*1e6/float64(n))
}

func (s *scene) compareAdmission(ctx context.Context, n int, what string, work admissionWork) {
	var off, on admissionCost
	var ratios samples
	for round := range s.rounds(admissionRounds) {
		off.measure(ctx, s, n, work)
		s.withPolicies(ctx, func() { on.measure(ctx, s, n, work) })
		ratios = append(ratios, divide(on.elapsed[round], off.elapsed[round]))
		progress("row 10: %d %s: without %.2f s, with %.2f s", n, what, off.elapsed[round], on.elapsed[round])
	}
	without, with := off.elapsed.median(), on.elapsed.median()
	s.report.add(10, check{
		what: fmt.Sprintf("%d %s, with the admission policies", n, what), unit: "s",
		ours: with, floor: without, ratio: ratios.median(),
		note: fmt.Sprintf("floor: without; %.0f instead of %.0f a second; ratio %.2f to %.2f; %.0f instead of %.0f "+
			"µs of the API server's CPU each", float64(n)/with, float64(n)/without,
			ratios.min(), ratios.max(), on.cpu.median(), off.cpu.median()),
	})
}

// withPolicies does something while the policies are installed.
func (s *scene) withPolicies(ctx context.Context, do func()) {
	dir := try(framework.ModuleFile("artifacts", "admission"))
	try(s.Kubectl(ctx, "apply", "-k", dir))
	s.awaitPolicies(ctx, true)
	do()
	try(s.Kubectl(ctx, "delete", "-k", dir))
	s.awaitPolicies(ctx, false)
}

// awaitPolicies waits until a binding is labelled, or until it is not any more.
func (s *scene) awaitPolicies(ctx context.Context, wanted bool) {
	pods := s.Kube.CoreV1().Pods(s.name)
	must(framework.Poll(ctx, func(ctx context.Context) error {
		name := s.newApp()
		_, err1 := pods.Create(ctx, newPod("probe", name), metav1.CreateOptions{})
		err2 := pods.Bind(ctx, framework.NewBinding(name, s.nodes[0], nil), metav1.CreateOptions{})
		bound, err3 := pods.Get(ctx, name, metav1.GetOptions{})
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		if _, labelled := bound.Labels[v1alpha1.DefaultNodeLabelKey]; labelled != wanted {
			return fmt.Errorf("a bound pod has its label: %t", labelled)
		}
		return nil
	}))
}

// bindPods binds pods as fast as bare clients can.
func (s *scene) bindPods(ctx context.Context, n int) time.Duration {
	pods := s.seedPods(ctx, s.newApp(), n, podPending)
	return s.floor(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		target := framework.NewBinding(pods[i].Name, s.nodes[i%len(s.nodes)], nil)
		return client.CoreV1().Pods(s.name).Bind(ctx, target, metav1.CreateOptions{})
	})
}

// updatePods changes the status of pods that have their label, as kubelets do.
func (s *scene) updatePods(ctx context.Context, n int) time.Duration {
	pods := s.seedPods(ctx, s.newApp(), n, podLabelled)
	patch := []byte(`{"status":{"message":"still running"}}`)
	return s.floor(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := client.CoreV1().Pods(s.name).Patch(ctx, pods[i].Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		return err
	})
}

// createPods creates pods that have no node and no label, as nearly all are created.
func (s *scene) createPods(ctx context.Context, n int) time.Duration {
	app := s.newApp()
	return s.floor(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		pod := newPod(app, fmt.Sprintf("%s-%06d", app, i))
		_, err := client.CoreV1().Pods(s.name).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// schedulePods has kube-scheduler, which is started for it, bind pods that wait.
func (s *scene) schedulePods(ctx context.Context, n int) time.Duration {
	s.seedPods(ctx, s.newApp(), n, podPending)
	mark := s.Audit.Mark()
	scheduler := s.startComponent("kube-scheduler",
		"--kubeconfig", filepath.Join(s.Dir(), "pki", "kube-scheduler.kubeconfig"),
		"--leader-elect=false", "--secure-port=0", "--kube-api-qps", schedulerQPS, "--kube-api-burst", schedulerQPS)
	defer scheduler.Kill()
	return span(try(s.await(ctx, mark, n, func(rs framework.Requests) framework.Requests {
		return rs.By(schedulerAgent).Verb("create").Resource("pods/binding").Where(framework.Succeeded)
	})))
}
