package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestDeletionOfMost: that most Services go is announced before it happens, and can be made to wait for a confirmation.
func TestDeletionOfMost(t *testing.T) {
	typo := func(ls *v1alpha1.LocalService) {
		ls.Generation, ls.Spec.NodeSelector = 2, map[string]string{"typo": "x"}
	}
	ls := testLocalService(inPlace(3), typo)
	objects := []runtime.Object{ls, testNode("node1"), testNode("node2"), testNode("node3"),
		testService(ls, "node1"), testService(ls, "node2"), testService(ls, "node3")}
	deletions := []string{"delete services demo-node1 uid=uid-demo-node1", "delete services demo-node2 " +
		"uid=uid-demo-node2",
		"delete services demo-node3 uid=uid-demo-node3", "patch localservices/status demo 0/0 Ready"}
	t.Run("announced", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := runLocalServices(t, objects...)
			f.expect("writes", deletions, f.writes())
			f.expect("events", []string{"Warning DeletingServices About to delete 3 of 3 Services, which no " +
				"selected node wants any more",
				"Normal ServicesWritten Services: deleted 3 (0 nodes selected)"}, f.recorded())
		})
	})
	t.Run("held until confirmed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, objects...)
			f.deps.Options.Limits.MaxDeleteFraction = 0.5
			f.runLocalServices()
			f.expect("writes", []string{"patch localservices/status demo 0/0 not Ready: DeletionHeld, Stalled"}, f.writes())
			if got := f.recorded(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning DeletionHeld 3 of 3 "+
				"Services") {
				t.Errorf("events %v", got)
			}
			f.set(testLocalService(typo, func(ls *v1alpha1.LocalService) {
				ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
			}))
			settle()
			f.expect("writes after the confirmation", deletions, f.writes())
		})
	})
}

// TestCapacityMaxServicesPerNamespace: what would be too much is not begun, and done when there is room.
func TestCapacityMaxServicesPerNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default"}}
		f := newFixture(t, append(testNodes(5), testLocalService(), other)...)
		f.deps.Options.Limits = plan.Limits{MaxDeleteFraction: 1, MaxServicesPerNamespace: 5}
		f.runLocalServices()
		f.expect("writes", []string{"patch localservices/status demo 0/5 not Ready: TooManyServices, Stalled"}, f.writes())
		if got := f.recorded(); len(got) != 1 || !strings.Contains(got[0], "would have 6") {
			t.Errorf("events %v", got)
		}
		f.remove(other)
		time.Sleep(withheldInterval * 3 / 2) // with jitter
		settle()
		if got := f.writes(); len(got) != 6 {
			t.Errorf("writes %v, want 5 Services and the status", got)
		}
	})
}

// TestCapacityMadeByDeletion: what waits for a deletion of our own goes on by itself, and is not told to be stalled.
func TestCapacityMadeByDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService(inPlace(1))
		f := newFixture(t, ls, testService(ls, "gone"), testNode("node1"))
		f.deps.Options.Limits = plan.Limits{MaxDeleteFraction: 1, MaxServicesPerNamespace: 1}
		f.runLocalServices()
		f.expect("writes", []string{"create services demo-node1", "delete services demo-gone uid=uid-demo-gone",
			"patch localservices/status demo 0/1 not Ready: WritingServices, Progressing",
			"patch localservices/status demo 1/1 Ready"}, f.writes())
	})
}

// TestCapacityOfConflicts: a Service that has taken a name counts once, in its own right.
func TestCapacityOfConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, append(testNodes(2), testLocalService(), testobject.ForeignService("demo-node00"))...)
		f.deps.Options.Limits.MaxServicesPerNamespace = 2
		c := f.newLocalServices()
		end(t, c.loop)
		f.watch()
		if err := c.sync(t.Context(), demoKey); err != nil {
			t.Errorf("sync: %v", err)
		}
		f.expect("writes", []string{"create services demo-node01", "patch localservices/status demo 1/2 not Ready: " +
			"NameTaken, Conflicted, Stalled"}, f.writes())
	})
}

// TestCapacityNear: more Services than pods stand are made all the same, and warned of before, once.
func TestCapacityNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addressed := testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" })
		objects := []runtime.Object{addressed, testNode("node1")}
		for i := range 1000 {
			objects = append(objects, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i),
				Namespace: "default"},
				Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprintf("10.1.%d.%d", i/250, i%250),
					ClusterIPs: []string{"10.1.0.1"}}})
		}
		f := runLocalServices(t, objects...)
		f.expect("writes", []string{"create services demo-node1",
			"patch localservices/status demo 0/1 not Ready: WritingServices, Progressing, NearCapacity",
			"patch localservices/status demo 1/1 Ready, NearCapacity"}, f.writes())
		if got := f.recorded(); len(got) != 2 || !strings.HasPrefix(got[0], "Warning ManyEnvironmentVariables the "+
			"namespace has 1001 Services") {
			t.Errorf("events %v, want the warning first", got)
		}
		// One more is nothing new.
		f.set(testNode("node2"))
		settle()
		f.expect("writes", []string{"create services demo-node2", "patch localservices/status demo 2/2 Ready, " +
			"NearCapacity"}, f.writes())
		f.expect("events", []string{"Normal ServicesWritten Services: created 1 (2 nodes selected)"}, f.recorded())
		// Where nothing is created, the status is written once, at the end.
		f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP, ls.Generation = "", 2 }))
		settle()
		f.expect("writes", []string{"patch localservices/status demo 2/2 Ready, NearCapacity"}, f.writes())
	})
}
