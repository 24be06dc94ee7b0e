package diagnose

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestOutdatedStatus: the view says that the status is about an earlier spec, as while no controller runs.
func TestOutdatedStatus(t *testing.T) {
	in := Input{LocalService: localService(func(ls *v1alpha1.LocalService) { ls.Generation++ }), Nodes: nodes("n1"),
		AllNodes: true, Pods: []*corev1.Pod{pod("a", "n1")}}
	const want = "The controller has not acted on the last change of the LocalService: is it running?"
	if got := Nodes(in).Message; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestTranslatedPorts: it is said where clients have to connect to another port than that of the LocalService.
func TestTranslatedPorts(t *testing.T) {
	ls := localService(func(ls *v1alpha1.LocalService) {
		ls.Spec.ClusterIP = corev1.ClusterIPNone
		ls.Spec.Ports = []v1alpha1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}
	})
	in := Input{LocalService: ls, Nodes: nodes("n1"), AllNodes: true, Pods: []*corev1.Pod{pod("a", "n1")}}
	const want = "Clients must connect to port 8080 (not 80): a headless Service does not translate ports."
	if got := Nodes(in).Message; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
