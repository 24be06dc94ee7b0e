package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	labelNodes   = 200
	labelPods    = 3000
	labelRounds  = 3
	labelLimit   = 1.15 // of the time that bare clients take
	labelTimeout = 15 * time.Minute
	// So many pods are scheduled, one after the other, to see how soon each is labelled.
	scheduledPods      = 3000
	scheduledPerSecond = 100
)

// measurePods measures row 5. The LocalServices select no node, so that no Services are made.
func measurePods(ctx context.Context, b *bench) {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	b.withScene(ctx, b.n(labelNodes), func(s *scene) {
		pods := b.n(labelPods)
		for _, distance := range b.distances() {
			s.from(distance, func() {
				what := fmt.Sprintf("%d pods labelled, %v away", pods, distance)
				s.countPatches(pods, b.compareRounds(5, what, labelLimit, labelRounds, func(int) compared {
					return s.labelRound(ctx, pods)
				}))
			})
		}
		s.measureScheduled(ctx, b.n(scheduledPods))
	})
}

func (s *scene) labelRound(ctx context.Context, n int) compared {
	var floor time.Duration
	s.besideStandby(ctx, func() { floor = s.floorLabel(ctx, n) })
	app := s.newApp()
	s.seedPods(ctx, app, n, podRunning)
	var c compared
	s.withController(ctx, func(ctx context.Context, p *controller) { c = s.label(ctx, p, app, n) })
	c.floor = floor
	return c
}

// label lets the controller label the n pods of an app.
func (s *scene) label(ctx context.Context, p *controller, app string, n int) compared {
	o := s.observe(ctx, p, func(mark framework.Mark) {
		try(s.create(ctx, s.localService(app, framework.SceneLabel, "none")))
		try(s.await(ctx, mark, n, labelledPods))
	})
	elapsed := podPatches(o.requests).Last().Sub(o.requests.Resource("localservices").Verb("create").First())
	return compared{observed: o, elapsed: elapsed}
}

// floorLabel is how long bare clients take to label pods as the controller does.
func (s *scene) floorLabel(ctx context.Context, n int) time.Duration {
	pods := s.seedPods(ctx, s.newApp(), n, podRunning)
	options := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager}
	return s.floor(ctx, n, func(ctx context.Context, client kubernetes.Interface, i int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"labels":{%q:%q}}}`,
			pods[i].UID, v1alpha1.DefaultNodeLabelKey, pods[i].Spec.NodeName)
		_, err := client.CoreV1().Pods(s.name).Patch(ctx, pods[i].Name, types.MergePatchType, patch, options)
		return err
	})
}

// countPatches checks that each pod was patched once.
func (s *scene) countPatches(pods int, rounds []compared) {
	patches, patched := 0, sets.New[string]()
	for _, c := range rounds {
		for _, r := range podPatches(c.requests) {
			patches++
			patched.Insert(r.ObjectRef.Name)
		}
	}
	s.report.count(5, "patches a pod", float64(patches)/float64(pods*len(rounds)), 1)
	s.report.count(5, "second patches of a pod", float64(patches-len(patched)), 0)
}

// measureScheduled measures how long after its binding a pod is labelled.
func (s *scene) measureScheduled(ctx context.Context, n int) {
	app := s.newApp()
	pods := s.seedPods(ctx, app, n, podPending)
	try(s.create(ctx, s.localService(app, framework.SceneLabel, "none")))
	s.withController(ctx, func(ctx context.Context, p *controller) {
		s.reportScheduled(s.observe(ctx, p, func(mark framework.Mark) {
			must(paced(ctx, loadWorkers, n, scheduledPerSecond, func(ctx context.Context, i int) error {
				target := framework.NewBinding(pods[i].Name, s.nodes[i%len(s.nodes)], nil)
				return s.Kube.CoreV1().Pods(s.name).Bind(ctx, target, metav1.CreateOptions{})
			}))
			try(s.await(ctx, mark, n, labelledPods))
		}))
	})
}

func (s *scene) reportScheduled(o observed) {
	bindings, patches := o.requests.Resource("pods/binding").Verb("create"), labelledPods(o.requests)
	bound := map[string]time.Time{}
	for _, r := range bindings {
		bound[r.ObjectRef.Name] = r.StageTimestamp.Time
	}
	delays := samplesOf(patches, func(r framework.Request) float64 {
		return milliseconds(r.StageTimestamp.Sub(bound[r.ObjectRef.Name]))
	})
	s.report.add(5, check{
		what: fmt.Sprintf("from scheduled to labelled at %d pods/s, p99", scheduledPerSecond), unit: "ms",
		ours: delays.quantile(0.99),
		note: fmt.Sprintf("p50 %.1f, longest %.1f; %d pods, %.0f ms of CPU a thousand", delays.median(), delays.max(),
			len(delays), divide(milliseconds(o.cpu)*1000, float64(len(delays)))),
	}.atMost(50))
	s.report.count(5, "patches a scheduled pod", divide(float64(len(patches)), float64(len(bindings))), 1)
}
