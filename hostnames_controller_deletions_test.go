package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

func (f *fixture) removeSlice(suffix string) {
	f.t.Helper()
	f.remove(f.slice(sourceName + "-" + suffix))
}

// TestHostnamesSourceRecreated: the names of a deleted Source stay until Kubernetes has published all pods of the next
// one, not only its first EndpointSlice.
func TestHostnamesSourceRecreated(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *fixture) {
			w.publish("1", "a")
			w.publish("2", "b")
			w.want("first", "a=10.0.0.1", "b=10.0.0.1")
			w.remove(w.services()[sourceName])
			for _, s := range []string{"1", "2"} {
				w.removeSlice(s)
			}
			settle()
			w.want("the source is gone", "a=10.0.0.1", "b=10.0.0.1")
			w.publish("3", "a") // The second one follows.
			if got := w.names(); !slices.Contains(got, "b=10.0.0.1") {
				t.Errorf("only the first of two EndpointSlices is published, and b is deleted already: %q", got)
			}
		})
}

// TestHostnamesPublishedOrphans: after `kubectl delete service --cascade=orphan`, the Service that is created again
// gets the EndpointSlices of the one before, and the names stay.
func TestHostnamesPublishedOrphans(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *fixture) {
		w.publish("1", "a")
		copied := plan.CopyName(sourceName + "-1")
		w.editSlice(copied, func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil })
		w.remove(w.services()["demo"])
		settle()
		w.want("afterwards", "a=10.0.0.1")
		if published := w.services()["demo"]; !metav1.IsControlledBy(w.slice(copied), published) {
			t.Errorf("%s is not controlled by %s %s", copied, published.Name, published.UID)
		}
	})
}

// editSlice edits an EndpointSlice.
func (f *fixture) editSlice(name string, edit func(*discoveryv1.EndpointSlice)) {
	slice := f.slice(name)
	edit(slice)
	f.set(slice)
}

// TestHostnamesSliceDeleted: Kubernetes publishes again what somebody has deleted of a Source. Until then the names
// stay, whatever else happens at that moment.
func TestHostnamesSliceDeleted(t *testing.T) {
	for name, c := range map[string]struct{ before, after func(*fixture) }{
		"alone":               {},
		"a node joins before": {before: func(w *fixture) { w.set(testNode("c")) }},
		"a node joins after":  {after: func(w *fixture) { w.set(testNode("c")) }},
		"a pod changes before": {before: func(w *fixture) {
			w.editSlice(sourceName+"-2", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = new(int32(9090)) })
		}},
		"somebody edits the source before": {before: func(w *fixture) {
			w.editSlice(sourceName+"-2",
				func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "somebody" })
		}},
		"somebody edits the copy after": {after: func(w *fixture) {
			w.editSlice(plan.CopyName(sourceName+"-2"),
				func(s *discoveryv1.EndpointSlice) { delete(s.Labels, corev1.IsHeadlessService) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []runtime.Object{testNode("a"), testNode("b")}
			inHostnamesWorld(t, testLocalService(hostnamesMode), nodes, func(w *fixture) {
				w.publish("1", "a")
				w.publish("2", "b")
				time.Sleep(time.Minute) // The Source itself is not new.
				if c.before != nil {
					c.before(w)
					synctest.Wait()
				}
				w.removeSlice("2")
				synctest.Wait()
				if c.after != nil {
					c.after(w)
				}
				settle()
				w.want("soon after", "a=10.0.0.1", "b=10.0.0.1")
				time.Sleep(plan.CopyStays)
				w.want("in the end", "a=10.0.0.1")
			})
		})
	}
}
