package diagnose

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestInvariants makes views of random objects: a node where nothing answers always has a reason, one without a reason
// has all its endpoints ready, and no argument is changed.
func TestInvariants(t *testing.T) {
	podChanges := []func(*corev1.Pod){
		func(*corev1.Pod) {}, withoutLabel, labelled("n1"), labelled("n2"), ending,
		phase(corev1.PodFailed, "Evicted"),
		notReady(running), notReady(waiting("CrashLoopBackOff")), func(p *corev1.Pod) { p.Status = corev1.PodStatus{} },
		func(p *corev1.Pod) { p.Labels = nil },
	}
	serviceChanges := []func(*corev1.Service){
		func(*corev1.Service) {}, func(*corev1.Service) {}, func(s *corev1.Service) { s.OwnerReferences = nil },
		func(s *corev1.Service) { s.Spec.Selector = nil },
		func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) },
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		in := Input{LocalService: localService(), Nodes: nodesWith("n1", "n2", "n3")}
		in.LocalService.Spec.PublishNotReadyAddresses = r.IntN(4) == 0
		for _, name := range []string{"n1", "n2", "n3"} {
			switch r.IntN(5) {
			case 0:
				in.Services = append(in.Services, other("demo-"+name, nil)...)
			case 1:
			default:
				in.Services = append(in.Services, aService(name, serviceChanges[r.IntN(len(serviceChanges))]))
			}
			for i := range r.IntN(4) {
				podName := fmt.Sprintf("%s-%d", name, i)
				in.Pods = append(in.Pods, aPod(podName, []string{name, name, name, ""}[r.IntN(4)],
					podChanges[r.IntN(len(podChanges))]))
				if r.IntN(3) > 0 {
					in.EndpointSlices = append(in.EndpointSlices,
						slice(name, anEndpoint(podName, "10.0.0.1", r.IntN(2) > 0)))
				}
			}
		}
		checkInvariants(t, seed, in)
	}
}

func checkInvariants(t *testing.T, seed uint64, in Input) {
	t.Helper()
	for _, n := range listOf(t, in).Items {
		if n.Endpoints.Ready == 0 && n.Reason == "" || n.Reason == "" && n.Endpoints.Ready < n.Endpoints.Total ||
			(n.Reason == "") != (n.Message == "") || (n.Reason == "") != (n.State == Healthy) ||
			n.Endpoints.Ready > 0 && (n.State == Down || n.State == Empty) {
			t.Fatalf("seed %d: %+v", seed, n)
		}
	}
}
