package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	fairnessNodes   = 5000
	fairnessSamples = 10
	// sampleTimeout is when a sample is given up. It then counts as having taken so long.
	sampleTimeout = time.Minute
)

// fairness measures how long small pieces of work wait while large ones are under way.
type fairness struct {
	localServices    int     // under way
	created, deleted samples // seconds until a new LocalService has its Service, and a deleted node has lost its own
	givenUp          int
	taken            sets.Set[string] // nodes that are deleted, or selected by small LocalServices
}

// measureFairness measures row 9: a new LocalService of one node, and a node that is deleted, while many LocalServices
// of many nodes are being fanned out.
func measureFairness(ctx context.Context, b *bench) {
	for _, size := range []struct {
		localServices int
		limit         float64 // seconds
	}{{20, 1}, {100, 3}} {
		f := &fairness{localServices: b.n(size.localServices)}
		b.withScene(ctx, b.n(fairnessNodes), func(s *scene) {
			s.withController(ctx, func(ctx context.Context, _ *controller) { s.sampleFairness(ctx, f) })
		})
		beside := fmt.Sprintf(" beside %d × %d", f.localServices, b.n(fairnessNodes))
		b.report.add(9,
			f.created.longest("a new LocalService of one node"+beside).atMost(size.limit),
			f.deleted.longest("the Services of a deleted node are gone"+beside).atMost(size.limit),
		)
		b.report.count(9, fmt.Sprintf("not done after %v%s", sampleTimeout, beside), float64(f.givenUp), 0)
	}
}

// sampleFairness takes samples until there are enough, one is given up, or half of the Services are made: later, not as
// many LocalServices may be under way.
func (s *scene) sampleFairness(ctx context.Context, f *fairness) {
	half, rounds := f.localServices*len(s.nodes)/2, s.rounds(fairnessSamples)
	small := s.nodes[len(s.nodes)-rounds:] // These have a LocalService of their own, and are not deleted.
	f.taken = sets.New(small...)
	mark := s.Audit.Mark()
	s.createLocalServices(ctx, "large", f.localServices)
	try(s.await(ctx, mark, 1, createdServices))
	for i := range rounds {
		must(pause(ctx, s.shorter(time.Second)))
		made := createdServices(s.Audit.Since(mark))
		if i > 0 && (len(made) > half || f.givenUp > 0) {
			break
		}
		s.sampleOnce(ctx, f, fmt.Sprintf("small%03d", i), small[i], made)
		progress("row 9, after %d Services: a new LocalService %.2f s, a deleted node %.2f s",
			len(made), f.created[i], f.deleted[i])
	}
}

// sampleOnce makes a LocalService of one node, and deletes the node with most of the Services that are made.
func (s *scene) sampleOnce(ctx context.Context, f *fairness, name, node string, made framework.Requests) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	gone, services := mostServed(made, f.taken)
	f.taken.Insert(gone)
	mark := s.Audit.Mark()
	try(s.create(ctx, s.localService(name, corev1.LabelHostname, node)))
	must(s.Kube.CoreV1().Nodes().Delete(ctx, gone, metav1.DeleteOptions{}))
	asked := s.Audit.Since(mark)
	created := asked.Resource("localservices").Verb("create").First()
	deleted := asked.Resource("nodes").Verb("delete").First()
	f.created = append(f.created, s.awaitSample(ctx, f, mark, created, createdServices, sets.New(name+"-"+node)))
	f.deleted = append(f.deleted, s.awaitSample(ctx, f, mark, deleted, deletedServices, services))
}

// mostServed returns the node with most of some Services, but for those that are taken, and the names of its Services.
func mostServed(made framework.Requests, taken sets.Set[string]) (most string, services sets.Set[string]) {
	byNode := map[string]sets.Set[string]{}
	for _, r := range made {
		if _, node, _ := strings.Cut(r.ObjectRef.Name, "-"); !taken.Has(node) {
			if byNode[node] == nil {
				byNode[node] = sets.New[string]()
			}
			byNode[node].Insert(r.ObjectRef.Name)
			if len(byNode[node]) > len(byNode[most]) {
				most = node
			}
		}
	}
	return most, byNode[most]
}

// awaitSample is how many seconds after it was asked for the last of the named Services was created or deleted.
func (s *scene) awaitSample(ctx context.Context, f *fairness, mark framework.Mark, asked time.Time,
	done pick, services sets.Set[string]) float64 {
	found, err := s.await(ctx, mark, len(services), func(rs framework.Requests) framework.Requests {
		return done(rs).Where(func(r *framework.Request) bool { return services.Has(r.ObjectRef.Name) })
	})
	if errors.Is(err, context.DeadlineExceeded) {
		f.givenUp++
		return sampleTimeout.Seconds()
	}
	must(err)
	return found.Last().Sub(asked).Seconds()
}
