package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	guardRounds = 5
	guardLimit  = 1.02 // of the time without the guard
	// guardSettles is how long the API server compiles policies after one has changed, on two slow cores.
	guardSettles = 3 * time.Second
	// guardedPods are as many as the controller labels, and as somebody else updates.
	guardedPods = 1000
)

// measureGuard measures row 12: what it costs the controller, and everybody else, that policies judge the controller's
// requests.
func measureGuard(ctx context.Context, b *bench) {
	b.withScene(ctx, b.n(1000), func(s *scene) {
		for _, distance := range b.distances() {
			s.from(distance, func() {
				s.compareGuard(ctx, fmt.Sprintf("1 LocalService × %d nodes, %v away", len(s.nodes), distance),
					func() (c compared) {
						s.withController(ctx, func(ctx context.Context, p *controller) {
							c = s.fanOut(ctx, p, s.newApp(), 1)
						})
						return c
					})
				s.compareGuard(ctx, fmt.Sprintf("%d pods labelled, %v away", b.n(guardedPods), distance),
					func() compared { return s.label(ctx, b.n(guardedPods)) })
			})
		}
		pods := s.seedPods(ctx, s.newApp(), b.n(guardedPods), podRunning)
		updates := 0
		s.compareGuard(ctx, fmt.Sprintf("%d pods updated by somebody else", len(pods)), func() compared {
			updates++
			return compared{elapsed: s.floor(ctx, len(pods),
				func(ctx context.Context, client kubernetes.Interface, i int) error {
					patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"update":"%d"}}}`, updates)
					_, err := client.CoreV1().Pods(s.name).Patch(ctx, pods[i].Name, types.MergePatchType, patch,
						metav1.PatchOptions{})
					return err
				})}
		})
	})
}

// compareGuard measures something without and with the guard: twice each, so that no order is an advantage, which was
// more than the guard costs.
func (s *scene) compareGuard(ctx context.Context, what string, measure func() compared) {
	s.compareRounds(12, what+", behind the guard", guardLimit, guardRounds, func(round int) compared {
		var took [2]compared // without, with
		for _, first := range []int{0, 1, 1, 0} {
			with := (first + round) % 2
			change := s.RemoveGuard
			if with == 1 {
				change = s.InstallGuard
			}
			must(change(ctx))
			time.Sleep(s.shorter(guardSettles))
			before := took[with].elapsed
			took[with] = measure()
			took[with].elapsed += before
		}
		took[1].floor = took[0].elapsed
		return took[1]
	})
	must(s.InstallGuard(ctx))
}
