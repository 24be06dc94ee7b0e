package cache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

func TestHostnameSliceKeepsWhatIsPublished(t *testing.T) {
	full := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "slice", Namespace: "default",
			Labels: map[string]string{discoveryv1.LabelManagedBy: plan.KubernetesSliceManager}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{"10.0.0.1"}, NodeName: new("k8s01"), Zone: new("zone-a"),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "zone-a"}}},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "pod", UID: "1"},
		}},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
	}
	want := &discoveryv1.EndpointSlice{AddressType: full.AddressType, Endpoints: full.Endpoints, Ports: full.Ports}
	slice, err := trimHostnameSlice(full.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // To read it must not use it up.
		if diff := cmp.Diff(want, slice.Get()); diff != "" {
			t.Error(diff)
		}
	}
}
