package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestFanOut tests the main feature: one Service for each node, with exactly the right content and no extra request.
func TestFanOut(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "fanout")
	f := s.newFence()
	nodes := s.AddNodes("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
	f.passNodes()
	s.ResetCount()
	ls := s.CreateReady("demo", func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
			Labels:      map[string]string{"team": "infra"},
			Annotations: map[string]string{"example.com/note": "hello"},
		}
	})
	for name, service := range s.MustOwn(ls, len(nodes)) {
		node := strings.TrimPrefix(name, "demo-")
		if !slices.Contains(nodes, node) {
			t.Errorf("Service %s is for no node", name)
		}
		checkService(t, service, ls, node)
	}
	f.passAll()
	s.WantWrites("services", fmt.Sprintf("%d create services 201", len(nodes)))
	isOther := func(r *framework.Request) bool {
		return !slices.Contains([]string{"services", "localservices", "events"}, r.ObjectRef.Resource)
	}
	if other := s.Requests().Writes().Where(isOther); len(other) > 0 {
		t.Errorf("the controller also wrote: %s", other)
	}
	s.wantReads(len(nodes) / 2) // It is slow if that many syncs of half a second are needed.
}

// wantReads fails if the controllers, which have caches, have read more than necessary: a LocalService before each sync
// that writes, with a maximum of such syncs, and the Service of each EndpointSlice that they created.
func (s *scene) wantReads(syncs int) {
	s.T.Helper()
	requests := s.Requests()
	reads := requests.Verb("get", "list", "watch")
	live := reads.Resource("localservices").Verb("get")
	owners := reads.Resource("services").Verb("list")
	slices := requests.Resource("endpointslices").Verb("create")
	if len(live) > syncs || len(owners) > len(slices) || len(live)+len(owners) < len(reads) {
		s.T.Errorf("the controller, which has its caches, also read: %s", reads)
	}
}

// checkService compares a Service, in every field that the API server does not set, with what the LocalService of
// TestFanOut should have on a node.
func checkService(t *testing.T, service *corev1.Service, ls *v1alpha1.LocalService, node string) {
	t.Helper()
	singleStack, cluster := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "demo-" + node,
			Namespace: ls.Namespace,
			Labels:    map[string]string{"owner": "demo", "vm/rack": node, "team": "infra"},
			Annotations: map[string]string{
				"example.com/note":                  "hello",
				"localservice.dev/node":             node,
				"localservice.dev/applied-metadata": `{"labels":["team"],"annotations":["example.com/note"]}`,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "localservice.dev/v1alpha1", Kind: "LocalService", Name: "demo", UID: ls.UID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  "None",
			ClusterIPs: []string{"None"},
			Ports: []corev1.ServicePort{{
				Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080),
			}},
			Selector:              map[string]string{"app": "demo", "vm/rack": node},
			SessionAffinity:       corev1.ServiceAffinityNone,
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
			IPFamilyPolicy:        &singleStack,
			InternalTrafficPolicy: &cluster,
		},
	}
	got := service.DeepCopy()
	for _, entry := range got.ManagedFields {
		if entry.Manager != "local-service-controller" {
			t.Errorf("Service %s was also written by %s", got.Name, entry.Manager)
		}
	}
	got.UID, got.ResourceVersion, got.CreationTimestamp, got.ManagedFields = "", "", metav1.Time{}, nil
	if err := framework.Equal("Service", got, want); err != nil {
		t.Error(err)
	}
}
