package diagnose

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestInvariants makes views of random objects: a node where nothing answers always has a reason, one without a reason
// has all its endpoints ready, and no argument is changed.
func TestInvariants(t *testing.T) {
	podChanges := []func(*corev1.Pod){
		func(*corev1.Pod) {}, unlabelled, labelled("n1"), labelled("n2"), terminating,
		phase(corev1.PodFailed, "Evicted"),
		notReady(running), notReady(waiting("CrashLoopBackOff")), func(p *corev1.Pod) { p.Status = corev1.PodStatus{} },
		func(p *corev1.Pod) { p.Labels = nil },
	}
	serviceChanges := []func(*corev1.Service){
		func(*corev1.Service) {}, func(*corev1.Service) {}, func(s *corev1.Service) { s.OwnerReferences = nil },
		func(s *corev1.Service) { s.Spec.Selector = nil },
		func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) },
	}
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		in := Input{LocalService: localService(), Nodes: nodes()}
		in.LocalService.Spec.PublishNotReadyAddresses = r.IntN(4) == 0
		for _, name := range []string{"n1", "n2", "n3"} {
			in.Nodes[name] = nil
			switch r.IntN(5) {
			case 0:
				in.Services = append(in.Services, other("demo-"+name, nil)...)
			case 1:
			default:
				in.Services = append(in.Services, service(name, serviceChanges[r.IntN(len(serviceChanges))]))
			}
			for i := range r.IntN(4) {
				podName := fmt.Sprintf("%s-%d", name, i)
				in.Pods = append(in.Pods, pod(podName, []string{name, name, name, ""}[r.IntN(4)],
					podChanges[r.IntN(len(podChanges))]))
				if r.IntN(3) > 0 {
					in.EndpointSlices = append(in.EndpointSlices,
						slice(name, endpoint(podName, "10.0.0.1", r.IntN(2) > 0)))
				}
			}
		}
		checkInvariants(t, seed, in)
	}
}

func checkInvariants(t *testing.T, seed uint64, in Input) {
	t.Helper()
	before := clone(in)
	for _, n := range nodesOf(t, in).Items {
		if n.Endpoints.Ready == 0 && n.Reason == "" || n.Reason == "" && n.Endpoints.Ready < n.Endpoints.Total ||
			(n.Reason == "") != (n.Message == "") {
			t.Fatalf("seed %d: %+v", seed, n)
		}
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Fatalf("seed %d: the input has been changed:\n%s", seed, diff)
	}
}

func clone(in Input) Input {
	in.LocalService = in.LocalService.DeepCopy()
	in.Nodes = maps.Clone(in.Nodes)
	in.Services, in.EndpointSlices, in.Pods = deepCopies(in.Services), deepCopies(in.EndpointSlices),
		deepCopies(in.Pods)
	return in
}

func deepCopies[T interface{ DeepCopy() T }](objects []T) []T {
	var out []T
	for _, object := range objects {
		out = append(out, object.DeepCopy())
	}
	return out
}
