package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestAdoptionOfOrphans: Services that were orphaned are adopted by a LocalService that is there, and by none that is being deleted
// and of which the cache does not know that yet: those were orphaned by the same command, and would be deleted with it.
func TestAdoptionOfOrphans(t *testing.T) {
	orphaned := func(s *corev1.Service) { s.OwnerReferences = nil }
	ls := testLocalService(inPlace(1))
	adopted := []string{`patch services demo-node1 {"metadata":{"ownerReferences":[{"apiVersion":"localservice.dev/v1alpha1",` +
		`"blockOwnerDeletion":true,"controller":true,"kind":"LocalService","name":"demo","uid":"uid-demo"}],"resourceVersion":"7"}}`}
	for name, c := range map[string]struct {
		live   func(*v1alpha1.LocalService) // at the API server, nil if it is gone
		writes []string
	}{
		"the LocalService is there":      {func(*v1alpha1.LocalService) {}, adopted},
		"it is being deleted":            {func(ls *v1alpha1.LocalService) { ls.DeletionTimestamp = &ls.CreationTimestamp }, nil},
		"it is another of the same name": {func(ls *v1alpha1.LocalService) { ls.UID = "another" }, nil},
		"it is gone":                     {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, controller := newLocalServiceFixture(t, ls, testNode("node1"), testService(t, ls, "node1", orphaned))
			f.client.PrependReactor("get", "localservices", func(core.Action) (bool, runtime.Object, error) {
				if c.live == nil {
					return true, nil, apierrors.NewNotFound(v1alpha1.Resource("localservices"), "demo")
				}
				live := ls.DeepCopy()
				c.live(live)
				return true, live, nil
			})
			if err := controller.sync(t.Context(), demoKey); (err == nil) != (c.writes != nil) {
				t.Errorf("sync: %v", err)
			}
			if diff := cmp.Diff(c.writes, f.writes()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestQuotaAndNewNodes: where a quota has room for one Service a node, and all nodes are replaced by others, the deletions
// are not given up because creations fail: they make the room.
func TestQuotaAndNewNodes(t *testing.T) {
	ls := testLocalService()
	objects := []runtime.Object{ls}
	for i := range 30 {
		objects = append(objects, testNode(fmt.Sprintf("a%d", i)), testService(t, ls, fmt.Sprintf("z%d", i)))
	}
	f, c := newLocalServiceFixture(t, objects...)
	f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("exceeded quota"))
	})
	if err := c.sync(t.Context(), demoKey); err == nil {
		t.Error("no error")
	}
	writes := f.writes()
	deletes := len(slices.DeleteFunc(slices.Clone(writes), func(w string) bool { return !strings.HasPrefix(w, "delete") }))
	creates := len(slices.DeleteFunc(slices.Clone(writes), func(w string) bool { return !strings.HasPrefix(w, "create") }))
	if deletes != 30 || creates > 2*cap(c.slots) {
		t.Errorf("%d deletions and %d attempts to create, want 30 and few", deletes, creates)
	}
}
