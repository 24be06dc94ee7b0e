package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestCauses: the plugin says why names do not answer in the words of Kubernetes' own events: a quota keeps the pods of
// a Service out of EndpointSlices, and a pod waits for a volume. It mentions Services that --cascade=orphan has left.
func TestCauses(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, publisher())
	cluster.NewController(t)
	s := newScene(t, cluster, "causes")
	nodes := s.AddNodes("a", "b")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "objects"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"count/endpointslices.discovery.k8s.io": resource.MustParse("0")}}}
	_, err := s.Kube.CoreV1().ResourceQuotas(s.Namespace).Create(s.Ctx(), quota, metav1.CreateOptions{})
	s.Must(err)
	class := "no-such-class"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	_, err = s.Kube.CoreV1().PersistentVolumeClaims(s.Namespace).Create(s.Ctx(), claim, metav1.CreateOptions{})
	s.Must(err)
	s.CreateReady("demo", spec("selector: {app: demo}, ports: [{port: 80}]"))
	s.run("ready", nodes[0], "10.1.2.3")
	s.CreatePod("waits", "", app, func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	})
	prints := func(want string, args ...string) {
		t.Helper()
		s.Eventually("the plugin prints "+want, func(context.Context) error {
			out, errOut, _ := framework.PluginProgram.Run(s.Ctx(), nil, []string{"KUBECONFIG=" + s.Kubeconfig},
				append(args, "-n", s.Namespace)...)
			if text := out + errOut; !strings.Contains(text, want) {
				return fmt.Errorf("%v prints, instead of %s:\n%s", args, want, text)
			}
			return nil
		})
	}
	prints("pods are ready, but not in the EndpointSlices; Error updating Endpoint Slices for Service "+s.Namespace+
		"/…: failed to create EndpointSlice for Service "+s.Namespace+"/…: endpointslices.discovery.k8s.io \"…\" is "+
		"forbidden: exceeded quota: objects", "nodes", "demo")
	prints(`its PersistentVolumeClaim is not bound, storageclass.storage.k8s.io "no-such-class" not found; no scheduler `+
		"has decided yet (waits)", "nodes", "demo")

	s.MustKubectl("delete", "localservice", "demo", "--cascade=orphan")
	left := "Services of a deleted LocalService " + s.Namespace + "/demo are left (--cascade=orphan)"
	prints(left, "nodes", "demo")
	prints("There is no LocalService in namespace "+s.Namespace+". "+left, "nodes")
}
