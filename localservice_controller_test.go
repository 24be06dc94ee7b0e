package main

import (
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var (
	demoKey          = types.NamespacedName{Namespace: "default", Name: "demo"}
	testLocalService = objects.LocalService
)

// newLocalServiceFixture makes a controller that does nothing by itself: the test calls sync.
func newLocalServiceFixture(t *testing.T, objects ...runtime.Object) (*fixture, *localServiceController) {
	t.Helper()
	f := newFixture(t, objects...)
	c := f.newLocalServices()
	end(t, c.loop)
	f.watch()
	return f, c
}

// runLocalServices makes a running controller.
func runLocalServices(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	f := newFixture(t, objects...)
	f.runLocalServices()
	return f
}

// runLocalServices runs a controller of LocalServices until the end of the test.
func (f *fixture) runLocalServices() {
	f.t.Helper()
	f.startLocalServices()
	settle()
}

// startLocalServices runs a controller of LocalServices until stop is called, or the end of the test.
func (f *fixture) startLocalServices() (stop func()) {
	f.t.Helper()
	c := f.newLocalServices()
	f.watch()
	return f.start(c.Run)
}

func (f *fixture) newLocalServices() *localServiceController {
	f.t.Helper()
	c, err := newLocalServiceController(f.deps, newWriters(f.deps))
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func onSSD(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "ssd"} }

// TestSync: a sync finds a state, makes the writes that bring it in line with the spec, and records an event for them.
// A second sync writes nothing.
func TestSync(t *testing.T) {
	ls := testLocalService()
	withAddress := testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" })
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-node1", Namespace: "default", UID: "theirs"}}
	orphaned := func(s *corev1.Service) { s.OwnerReferences = nil }
	for name, c := range map[string]struct {
		objects        []runtime.Object
		writes, events []string
	}{
		"a Service for every node, by its name and not by its label kubernetes.io/hostname": {
			[]runtime.Object{ls, testNode("node1", "kubernetes.io/hostname=other"), testNode("node2")},
			[]string{"create services demo-node1", "create services demo-node2",
				"update localservices/status demo 2/2 Ready"},
			[]string{"Normal ServicesWritten created 2: demo-node1, demo-node2"},
		},
		"only for selected nodes": {
			[]runtime.Object{testLocalService(onSSD), testNode("node1", "disk=ssd"), testNode("node2", "disk=hdd"),
				testNode("node3")},
			[]string{"create services demo-node1", "update localservices/status demo 1/1 Ready"},
			[]string{"Normal ServicesWritten created 1: demo-node1"},
		},
		"everything is in place": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"), testService(ls, "node1")}, nil, nil,
		},
		"a status that is wrong": {
			[]runtime.Object{testLocalService(inPlace(2)), testNode("node1"), testService(ls, "node1")},
			[]string{"update localservices/status demo 1/1 Ready"}, nil,
		},
		"a LocalService that is being deleted": {
			[]runtime.Object{testLocalService(func(ls *v1alpha1.LocalService) {
				ls.DeletionTimestamp, ls.Finalizers = new(metav1.Now()), []string{"foregroundDeletion"}
			}), testNode("node1")}, nil, nil,
		},
		"a LocalService that is gone": {[]runtime.Object{testNode("node1")}, nil, nil},
		"most nodes are gone": {
			[]runtime.Object{testLocalService(inPlace(3)), testNode("node1"), testService(ls, "node1"),
				testService(ls, "gone1"), testService(ls, "gone2")},
			[]string{"delete services demo-gone1 uid=uid-demo-gone1", "delete services demo-gone2 uid=uid-demo-gone2",
				"update localservices/status demo 1/1 Ready"},
			[]string{"Normal ServicesWritten deleted 2: demo-gone1, demo-gone2"},
		},
		"a cluster IP is replaced by none": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"), testService(withAddress, "node1")},
			[]string{"create services demo-node1", "delete services demo-node1 uid=uid-demo-node1"},
			[]string{"Normal ServicesWritten replaced 1: demo-node1"},
		},
		"an orphan is adopted": {
			[]runtime.Object{testLocalService(inPlace(1)), testNode("node1"), testService(ls, "node1", orphaned)},
			[]string{`patch services demo-node1 {"metadata":{"ownerReferences":[{` +
				`"apiVersion":"localservice.dev/v1alpha1","blockOwnerDeletion":true,"controller":true,` +
				`"kind":"LocalService","name":"demo","uid":"uid-demo"}],"resourceVersion":"7"}}`},
			[]string{"Normal ServicesWritten adopted 1: demo-node1"},
		},
		"a name is taken": {
			[]runtime.Object{ls, testNode("node1"), testNode("node2"), foreign},
			[]string{"create services demo-node2",
				"update localservices/status demo 1/2 not Ready: NameTaken, Conflicted, Stalled"},
			[]string{"Normal ServicesWritten created 1: demo-node2",
				`Warning NameTaken Service "demo-node1" (no owner) already exists. If nothing uses it, delete it; if ` +
					"the app needs it, create this LocalService under another name: a Service cannot be renamed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, controller := newLocalServiceFixture(t, c.objects...)
				if err := controller.sync(t.Context(), demoKey); err != nil {
					t.Errorf("sync: %v", err)
				}
				f.expect("writes", c.writes, f.writes())
				f.expect("events", c.events, f.recorded())
				synctest.Wait() // Now the caches have observed what was written.
				if err := controller.sync(t.Context(), demoKey); err != nil {
					t.Errorf("second sync: %v", err)
				}
				f.expect("writes of a second sync", nil, f.writes())
			})
		})
	}
}

// TestInvalidSpecIsReported: a spec that cannot work is reported once, also if the first write of the status fails.
func TestInvalidSpecIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("node1"), testLocalService(func(ls *v1alpha1.LocalService) {
			ls.Spec.Selector["vm/rack"] = "x"
		}))
		attempts := 0
		f.client.PrependReactor("update", "localservices", func(core.Action) (bool, runtime.Object, error) {
			attempts++
			return attempts == 1, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
		})
		f.runLocalServices()
		const reported = "update localservices/status demo 0/0 not Ready: InvalidSpec, Stalled"
		f.expect("writes", []string{reported, reported}, f.writes())
		f.expect("events", []string{"Warning InvalidSpec spec.selector names the node label vm/rack, which the " +
			"controller itself adds: remove it, and use nodeSelector to choose nodes"}, f.recorded())
	})
}
