// Package externaldns runs the recipe "A DNS record for each node" with the real external-dns. `make test-external-dns`
// builds and runs it; it is not among the other tests, as external-dns takes long to build.
package externaldns

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const zone = "agents.example.com"

// TestRecordForEachNode makes external-dns create the records of the recipe on a DNS server, and follows them while a
// pod is replaced and a node is deselected.
func TestRecordForEachNode(t *testing.T) {
	// The name of the third is not one label, as they are on many clouds.
	nodes := []string{"k8s01", "k8s02", "ip-10-0-0-3.ec2.internal"}
	cluster := framework.NewCluster(t, framework.ClusterOptions{
		Nodes: nodes, Images: map[string]string{"localhost/localservice-app:1": framework.AppProgram.MustPath(t)},
	})
	cluster.NewController(t)
	names := startServer(t, zone)
	startExternalDNS(t, cluster, names.port)
	recipe := framework.ModuleFile("artifacts", "examples", "recipes", "external-dns.yaml")
	cluster.RunKubectl(t, "create", "--filename="+recipe)

	wantRecords(t, cluster, names, nodes...)
	cluster.RunKubectl(t, "delete", "pod", "--selector=app=agents", "--field-selector=spec.nodeName="+nodes[1])
	wantRecords(t, cluster, names, nodes...)
	cluster.RunKubectl(t, "patch", "localservice", "agents", "--type=merge",
		fmt.Sprintf(`--patch={"spec":{"nodeSelector":{%q:%q}}}`, corev1.LabelHostname, nodes[2]))
	wantRecords(t, cluster, names, nodes[2])
}

// startExternalDNS starts external-dns as the recipe says to, for a DNS server on loopback.
func startExternalDNS(t *testing.T, cluster *framework.Cluster, port int) {
	t.Helper()
	cmd := exec.Command(framework.ExternalDNSProgram.MustPath(t),
		"--source=service", "--domain-filter="+zone, "--policy=sync", "--txt-owner-id=test", "--interval=1s",
		"--kubeconfig="+cluster.Kubeconfig, "--metrics-address=127.0.0.1:0",
		"--provider=rfc2136", "--rfc2136-host=127.0.0.1", "--rfc2136-port="+strconv.Itoa(port),
		"--rfc2136-zone="+zone, "--rfc2136-insecure", "--rfc2136-tsig-axfr", "--rfc2136-min-ttl=1s")
	process, err := framework.StartProcess(cmd, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("external-dns:\n%s", process.Tail(60))
		}
	})
}

// wantRecords waits until the zone has an address for each of some nodes, that of the pod there, and no others.
func wantRecords(t *testing.T, cluster *framework.Cluster, names *server, nodes ...string) {
	t.Helper()
	cluster.Eventually(t, "default", fmt.Sprintf("%s has records of the pods on %v", zone, nodes),
		func(ctx context.Context) error {
			pods, err := cluster.Kube.CoreV1().Pods("default").List(ctx,
				metav1.ListOptions{LabelSelector: "app=agents"})
			if err != nil {
				return err
			}
			byNode := map[string]string{}
			for _, pod := range pods.Items {
				if pod.DeletionTimestamp == nil && pod.Status.PodIP != "" {
					byNode[pod.Spec.NodeName] = pod.Status.PodIP
				}
			}
			want := map[string]string{}
			for _, node := range nodes {
				if byNode[node] == "" {
					return fmt.Errorf("there is no pod on %s", node)
				}
				want[naming.Hostname(node)+"."+zone] = byNode[node]
			}
			if got := names.addresses(); !maps.Equal(got, want) {
				return fmt.Errorf("the records are %v; want %v", got, want)
			}
			return nil
		})
}
