package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestRestore restores etcd from a backup while a leader and a standby run. The API server sends neither of them any
// event then. Both notice it, say so, and end, so that they are restarted. That of the API server alone ends neither.
func TestRestore(t *testing.T) {
	t.Parallel()
	cluster := solo(t).NewSeparate(t)
	s := newScene(t, cluster.Cluster, "restore")
	kubeconfig := "-kubeconfig=" + s.MustControllerKubeconfig(t)
	elect := []string{kubeconfig, "-leader-elect", "-leader-election-namespace=" + framework.ControllerNamespace,
		"-leader-election-lease-duration=5m"} // The API server is away for a while.
	leader := s.LaunchController(t, elect...)
	s.Must(leader.WaitReady(s.Ctx()))
	standby := s.LaunchController(t, append(elect, "-namespaces="+s.Namespace)...)
	s.Must(standby.WaitReady(s.Ctx()))
	s.AddNodes("a")
	s.CreateReady("demo")

	cluster.StopServers()
	backup := t.TempDir()
	s.Must(copyDir(cluster.Data, backup))
	mark := s.Audit.Mark()
	cluster.StartServers(t)
	s.Eventually("the standby watches again", func(context.Context) error { // It alone asks for this namespace.
		lists := s.Audit.Since(mark).ByController().Namespace(s.Namespace).Resource("services").Verb("list")
		return atLeast(len(lists.Where(framework.Succeeded)), 1)
	})
	for i := range 300 { // A restarted API server makes revisions, too.
		_, err := s.Kube.CoreV1().ConfigMaps(s.Namespace).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("revision-", i)}}, metav1.CreateOptions{})
		s.Must(err)
	}
	s.AddNodes("b")
	s.WaitStatusNodes("demo", 2)
	// The leader has read a LocalService that the backup lacks: a watch of less, or of less than a second, begins anew
	// without having missed anything.
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
	s.WaitReady("demo")
	if !leader.Running() || !standby.Running() {
		t.Fatal("a restart of the API server ends the controllers")
	}

	cluster.StopServers()
	s.Must(os.RemoveAll(cluster.Data))
	s.Must(copyDir(backup, cluster.Data))
	cluster.StartServers(t)
	began := time.Now()
	for _, controller := range s.Controllers() {
		if code, err := controller.Wait(); err != nil || code != 1 {
			t.Errorf("the exit code is %d, %v", code, err)
		}
		if lines := controller.LogLines("etcd was restored from a backup", "revision "); len(lines) != 1 {
			t.Errorf("the log says %d times what has happened:\n%s", len(lines), controller.Tail(20))
		}
	}
	t.Logf("noticed after %s", time.Since(began))
	s.NewController(t)
	s.AddNodes("c")
	s.WaitStatusNodes("demo", 2) // a and c
	s.WaitReady("demo")
}

func copyDir(from, to string) error { return exec.Command("cp", "--archive", from+"/.", to+"/").Run() }
