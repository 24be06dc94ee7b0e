package words

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestTranslatedPorts: it is said where clients have to connect to another port than that of the LocalService.
func TestTranslatedPorts(t *testing.T) {
	ports := func(clusterIP string, targets ...intstr.IntOrString) *v1alpha1.LocalService {
		return objects.LocalService(func(ls *v1alpha1.LocalService) {
			ls.Spec.ClusterIP, ls.Spec.Ports = clusterIP, nil
			for i, target := range targets {
				ls.Spec.Ports = append(ls.Spec.Ports, v1alpha1.ServicePort{Port: int32(80 + i), TargetPort: target})
			}
		})
	}
	for name, c := range map[string]struct {
		ls   *v1alpha1.LocalService
		want string
	}{
		"others": {ports("None", intstr.FromInt32(80), intstr.FromInt32(8081), intstr.FromInt32(8082)),
			"clients must connect to port 8081 (not 81), 8082 (not 82): a headless Service does not translate ports"},
		"two protocols": {objects.LocalService(func(ls *v1alpha1.LocalService) {
			tcp := v1alpha1.ServicePort{Port: 53, TargetPort: intstr.FromInt32(5353), Protocol: corev1.ProtocolTCP}
			ls.Spec.ClusterIP, ls.Spec.Ports = corev1.ClusterIPNone, []v1alpha1.ServicePort{tcp, tcp}
			ls.Spec.Ports[1].Protocol = corev1.ProtocolUDP
		}), "clients must connect to port 5353 (not 53): a headless Service does not translate ports"},
		"the same, none, a name": {ports("None", intstr.FromInt32(80), intstr.IntOrString{}, intstr.FromString("http")),
			""},
		"cluster IP": {ports("", intstr.FromInt32(8080)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TranslatedPorts(c.ls, nil); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
