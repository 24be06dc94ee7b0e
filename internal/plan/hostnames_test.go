package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestCopiesFromAPI plans from EndpointSlices as the API server returns them: a copy is in place if it is one by its
// controller, its labels and its content.
func TestCopiesFromAPI(t *testing.T) {
	ls := localService(func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames })
	services := map[Purpose]Service{}
	for _, template := range templates(t, ls) {
		services[template.purpose] = kept(stored(template.Service("")))
	}
	source := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: ls.Namespace, UID: "uid-s", ResourceVersion: "8",
			Labels: map[string]string{discoveryv1.LabelManagedBy: KubernetesSliceManager},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{
				Name: services[Source].GetName(), UID: services[Source].GetUID()},
				corev1.SchemeGroupVersion.WithKind("Service"))}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, NodeName: new("n1")}},
	}
	hostnames := NewHostnames(ls, services[Published], func(string) Labels { return nil })
	in := CopyInput{Hostnames: hostnames, Source: services[Source], Published: services[Published]}
	first := CopyChange{Action: Create, Name: copyName("s"), Source: SliceFromAPI(source)}
	inPlace := Copy(&first, services[Published], hostnames)
	type apiType = *discoveryv1.EndpointSlice
	for name, c := range map[string]struct {
		change  func(source, copied apiType)
		want    []Action
		sources int
	}{
		"in place":         {func(_, _ apiType) {}, nil, 1},
		"outdated":         {func(s, _ apiType) { s.Endpoints[0].Addresses[0] = "10.0.0.2" }, []Action{Update}, 1},
		"without hostname": {func(_, c apiType) { c.Endpoints[0].Hostname = nil }, []Action{Update}, 1},
		"without a label": {func(_, c apiType) { delete(c.Labels, corev1.IsHeadlessService) },
			[]Action{Update}, 1},
		"of a Service before": {func(_, c apiType) { c.OwnerReferences[0].UID = "x" }, []Action{Wait}, 1},
		"forged":              {func(s, _ apiType) { s.OwnerReferences[0].Controller = nil }, nil, 0},
		"of another manager": {func(s, _ apiType) { s.Labels[discoveryv1.LabelManagedBy] = "x" },
			nil, 0},
	} {
		source, copied := source.DeepCopy(), inPlace.DeepCopy()
		c.change(source, copied)
		sourceBefore, copiedBefore := source.DeepCopy(), copied.DeepCopy()
		in.Slices = map[string]EndpointSlice{source.Name: SliceFromAPI(source), copied.Name: SliceFromAPI(copied)}
		got := ComputeCopies(in)
		var actions []Action
		for i := range got.Changes {
			actions = append(actions, got.Changes[i].Action)
			Copy(&got.Changes[i], services[Published], hostnames)
		}
		if !slices.Equal(actions, c.want) || got.Sources != c.sources {
			t.Errorf("%s: %v, %d sources; want %v, %d", name, actions, got.Sources, c.want, c.sources)
		}
		if diff := cmp.Diff([]any{sourceBefore, copiedBefore}, []any{source, copied}); diff != "" {
			t.Errorf("%s: changed:\n%s", name, diff)
		}
	}
}
