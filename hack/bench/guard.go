package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	guardRounds = 5
	guardLimit  = 1.02 // of the time without the guard
	// guardRepeats is how often a round does the same in both scenes. Machines are noisy: the same work may take 20 %
	// more or less time, which is far more than what the guard costs.
	guardRepeats = 8
	// guardedPods are as many as the controller labels, or somebody else updates, at a time.
	guardedPods = 500
)

// measureGuard measures row 12: what it costs the controller, and everybody else, that policies judge the controller's
// requests.
func measureGuard(ctx context.Context, b *bench) {
	b.withScene(ctx, b.n(1000), func(open *scene) {
		try(open.ControllerKubeconfig(ctx)) // It installs the guard.
		must(open.ExemptFromGuard(ctx, open.name))
		s := pair{open, b.newScene(ctx, open.cluster, b.n(1000))}
		for _, distance := range b.distances() {
			open.from(distance, func() {
				s.compareFanOut(ctx, fmt.Sprintf("%v away", distance))
				s.compareLabels(ctx, fmt.Sprintf("%v away", distance))
			})
		}
		s.compareUpdates(ctx)
	})
}

// pair is two scenes on the same control plane, which begin alike.
type pair struct {
	open    *scene // whose namespace the guard leaves out
	guarded *scene
}

func (s pair) each(use func(s *scene)) {
	use(s.open)
	use(s.guarded)
}

// compare measures something in rounds, in both scenes in turn. Each round begins alike: what was made is gone, so that
// the API server's garbage collector has no more to do than before.
func (s pair) compare(ctx context.Context, what string, do func(measure func(func(s *scene) compared))) {
	b := s.open.bench
	b.compareRounds(12, what+", behind the guard", guardLimit, guardRounds, func(round int) (c compared) {
		do(func(measure func(s *scene) compared) {
			for i := range b.rounds(guardRepeats) {
				for _, isGuarded := range []bool{(round+i)%2 == 0, (round+i)%2 != 0} {
					if isGuarded {
						guarded := measure(s.guarded)
						c.elapsed, c.cpu = c.elapsed+guarded.elapsed, c.cpu+guarded.cpu
					} else {
						c.floor += measure(s.open).elapsed
					}
				}
			}
		})
		s.each(func(s *scene) { s.empty(ctx) })
		return c
	})
}

func (s pair) compareFanOut(ctx context.Context, where string) {
	what := fmt.Sprintf("1 LocalService × %d nodes, %s", len(s.open.nodes), where)
	s.compare(ctx, what, func(measure func(func(s *scene) compared)) {
		s.open.withController(ctx, func(ctx context.Context, p *controller) {
			measure(func(s *scene) compared { return s.fanOut(ctx, p, s.newApp(), 1) })
		})
	})
}

func (s pair) compareLabels(ctx context.Context, where string) {
	b, pods := s.open.bench, s.open.n(guardedPods)
	s.compare(ctx, fmt.Sprintf("%d pods labelled, %s", pods, where), func(measure func(func(s *scene) compared)) {
		apps := map[*scene][]string{} // all in place before the watch begins; see learn
		s.each(func(s *scene) {
			for range b.rounds(guardRepeats) {
				app := s.newApp()
				s.seedPods(ctx, app, pods, podRunning)
				apps[s] = append(apps[s], app)
			}
		})
		s.open.withController(ctx, func(ctx context.Context, p *controller) {
			measure(func(s *scene) compared {
				app := apps[s][0]
				apps[s] = apps[s][1:]
				return s.label(ctx, p, app, pods)
			})
		})
	})
}

func (s pair) compareUpdates(ctx context.Context) {
	updates := 0
	what := fmt.Sprintf("%d pods updated by somebody else", s.open.n(guardedPods))
	s.compare(ctx, what, func(measure func(func(s *scene) compared)) {
		pods := map[*scene][]*corev1.Pod{}
		s.each(func(s *scene) { pods[s] = s.seedPods(ctx, s.newApp(), s.n(guardedPods), podRunning) })
		measure(func(s *scene) compared {
			updates++
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"update":"%d"}}}`, updates)
			return compared{elapsed: s.floor(ctx, len(pods[s]),
				func(ctx context.Context, client kubernetes.Interface, i int) error {
					_, err := client.CoreV1().Pods(s.name).Patch(ctx, pods[s][i].Name, types.MergePatchType, patch,
						metav1.PatchOptions{})
					return err
				})}
		})
	})
}
