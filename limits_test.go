package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestDeletionOfMost: that most Services are deleted is announced before it happens.
func TestDeletionOfMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService(inPlace(3))
		f := runLocalServices(t, ls, testNode("node1"), testService(ls, "node1"), testService(ls, "gone1"),
			testService(ls, "gone2"))
		f.expect("writes", []string{"delete services demo-gone1 uid=uid-demo-gone1",
			"delete services demo-gone2 uid=uid-demo-gone2", "patch localservices/status demo 1/1 Ready"}, f.writes())
		f.expect("events", []string{"Warning DeletingServices About to delete 2 of 3 Services, which no " +
			"selected node wants any more",
			"Normal ServicesWritten Services: deleted 2 (1 nodes selected)"}, f.recorded())
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
