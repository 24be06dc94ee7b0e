package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	labelRounds  = 2
	labelPods    = 20000
	labelTimeout = 10 * time.Minute
	// So many pods are scheduled, one after the other, to see how soon each is labelled.
	scheduledPods      = 3000
	scheduledPerSecond = 100
)

// labelled is what the controller did for pods that a new LocalService selects.
type labelled struct {
	elapsed time.Duration // from the LocalService received to the last pod labelled
	cpu     time.Duration
	patches int
	twice   int // pods with more than one patch
}

// measurePods measures row 5. The LocalServices select no node, so that no Services are made.
func (b *bench) measurePods(ctx context.Context) error {
	return b.withCluster(ctx, func(c *cluster) error {
		s, err := b.newScene(ctx, c, b.n(200))
		if err != nil {
			return err
		}
		var ours, floors, ratios, cpu []float64
		patches, twice := 0, 0
		for round := range b.rounds(labelRounds) + 1 {
			n := b.n(labelPods)
			if round == 0 {
				n = b.n(labelPods / 10) // It warms up the API server.
			}
			floor, err := b.floorLabelOnce(ctx, s, round, n)
			if err != nil {
				return err
			}
			l, err := b.labelOnce(ctx, s, round, n)
			if err != nil {
				return err
			}
			progress("row 5, round %d: bare clients %v, controller %v", round, floor, l.elapsed)
			if round == 0 {
				continue
			}
			ours, floors = append(ours, l.elapsed.Seconds()), append(floors, floor.Seconds())
			ratios, cpu = append(ratios, ratio(l.elapsed, floor)), append(cpu, l.cpu.Seconds())
			patches, twice = patches+l.patches, twice+l.twice
		}
		pods := b.n(labelPods)
		b.report.add(check{Row: 5, What: fmt.Sprintf("%d pods labelled", pods), Unit: "s", Ours: median(ours), Floor: median(floors), Ratio: median(ratios), Limit: 1.25, Of: ofRatio,
			Note: fmt.Sprintf("median of %d rounds, ratio %.2f to %.2f", len(ours), quantile(ratios, 0), quantile(ratios, 1))})
		b.report.count(5, "patches a pod", float64(patches)/float64(pods*len(ours)), 1)
		b.report.count(5, "pods with more than one patch", float64(twice), 0)
		b.report.add(check{Row: 5, What: "CPU of the controller for it", Unit: "s", Ours: median(cpu)})
		return b.measureScheduled(ctx, s)
	})
}

func (b *bench) floorLabelOnce(ctx context.Context, s *scene, round, n int) (time.Duration, error) {
	pods, err := s.seedPods(ctx, fmt.Sprintf("floor%d", round), fmt.Sprintf("floor%d", round), n, podRunning)
	if err != nil {
		return 0, err
	}
	return b.floorLabel(ctx, s.cluster, pods)
}

func (b *bench) labelOnce(ctx context.Context, s *scene, round, n int) (l labelled, err error) {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	app := fmt.Sprintf("ours%d", round)
	pods, err := s.seedPods(ctx, app, app, n, podRunning)
	if err != nil {
		return l, err
	}
	patches := all(byUs, verb("patch", "pods"), in(s.name))
	err = b.withController(ctx, s.cluster, nil, func(ctx context.Context, p *controller, _ time.Duration) error {
		if err := s.audit.waitQuiet(ctx, 4*conclusionTime); err != nil {
			return err
		}
		mark, err := s.audit.mark()
		if err != nil {
			return err
		}
		return b.profiled(ctx, p, fmt.Sprintf("row5-%d", round), func() (err error) {
			l.cpu, err = p.usage(func() error {
				return s.selectAndWait(ctx, app, mark, len(pods), all(patches, done))
			})
			if err != nil {
				return err
			}
			requests, err := s.audit.since(mark)
			l.elapsed = requests.where(patches).last().Sub(requests.where(all(by(loadAgent), verb("create", "localservices"))).first())
			l.count(requests.where(patches))
			return err
		})
	})
	return l, err
}

// selectAndWait creates a LocalService that selects an app's pods on no node, and waits until they are labelled.
func (s *scene) selectAndWait(ctx context.Context, app string, mark, pods int, patches filter) error {
	if err := s.selectPods(ctx, app); err != nil {
		return err
	}
	if _, err := s.audit.waitFor(ctx, mark, pods, "labelled pods", patches); err != nil {
		return err
	}
	return s.audit.waitQuiet(ctx, conclusionTime)
}

func (s *scene) selectPods(ctx context.Context, app string) error {
	ls := s.localService(app)
	ls.Spec.NodeSelector = map[string]string{sceneLabelKey: "none"}
	_, err := s.localServices.LocalserviceV1alpha1().LocalServices(s.name).Create(ctx, ls, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create LocalService %s: %w", app, err)
	}
	return nil
}

func (l *labelled) count(patches requests) {
	l.patches = len(patches)
	perPod := map[string]int{}
	for i := range patches {
		name := patches[i].Object.Name
		if perPod[name]++; perPod[name] == 2 {
			l.twice++
		}
	}
}

// measureScheduled measures how long after its binding a pod is labelled.
func (b *bench) measureScheduled(ctx context.Context, s *scene) error {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	pods, err := s.seedPods(ctx, "scheduled", "scheduled", b.n(scheduledPods), podPending)
	if err != nil {
		return err
	}
	if err := s.selectPods(ctx, "scheduled"); err != nil {
		return err
	}
	return b.withController(ctx, s.cluster, nil, func(ctx context.Context, p *controller, _ time.Duration) error {
		if err := s.audit.waitQuiet(ctx, 4*conclusionTime); err != nil {
			return err
		}
		mark, err := s.audit.mark()
		if err != nil {
			return err
		}
		patches := all(byUs, verb("patch", "pods"), in(s.name), done)
		cpu, err := p.usage(func() error {
			if err := s.bind(ctx, pods); err != nil {
				return err
			}
			_, err := s.audit.waitFor(ctx, mark, len(pods), "labelled pods", patches)
			return err
		})
		if err != nil {
			return err
		}
		requests, err := s.audit.since(mark)
		if err != nil {
			return err
		}
		b.reportScheduled(requests.where(all(by(loadAgent), verb("create", "pods/binding"))), requests.where(patches), cpu)
		return nil
	})
}

// bind binds pods to nodes as the scheduler does, scheduledPerSecond of them.
func (s *scene) bind(ctx context.Context, pods []podRef) error {
	began := time.Now()
	return parallel(ctx, loadWorkers, len(pods), func(ctx context.Context, _, i int) error {
		if err := pause(ctx, time.Until(began.Add(time.Second*time.Duration(i)/scheduledPerSecond))); err != nil {
			return err
		}
		err := s.kube.CoreV1().Pods(s.name).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: pods[i].name},
			Target:     corev1.ObjectReference{Kind: "Node", Name: s.nodes[i%len(s.nodes)]},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("bind pod %s: %w", pods[i].name, err)
		}
		return nil
	})
}

func (b *bench) reportScheduled(bindings, patches requests, cpu time.Duration) {
	bound := map[string]time.Time{}
	for i := range bindings {
		bound[bindings[i].Object.Name] = bindings[i].Answered
	}
	var delays []float64
	for i := range patches {
		delays = append(delays, patches[i].Answered.Sub(bound[patches[i].Object.Name]).Seconds()*1000)
	}
	b.report.add(check{Row: 5, What: fmt.Sprintf("from scheduled to labelled at %d pods/s, p99", scheduledPerSecond), Unit: "ms", Ours: quantile(delays, 0.99), Limit: 50, Of: ofOurs,
		Note: fmt.Sprintf("p50 %.1f, longest %.1f; %d pods, %.0f ms of CPU a thousand", quantile(delays, 0.5), quantile(delays, 1), len(delays), divide(cpu.Seconds()*1e6, float64(len(delays))))})
	b.report.count(5, "patches a scheduled pod", divide(float64(len(patches)), float64(len(bindings))), 1)
}
