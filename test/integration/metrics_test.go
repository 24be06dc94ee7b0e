package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// cacheAge matches the line of the metrics with the age of a cache.
var cacheAge = regexp.MustCompile(`(?m)^localservice_cache_age_seconds{resource="([^"]+)"} (\S+)$`)

// TestMetrics tests that the metrics report the state of the cluster, and that those of Kubernetes' libraries are
// served, too.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "metrics")
	s.AddNodes("a", "b") // before the controller starts: no LocalService waits for them
	controller := s.newCandidate("controller")
	s.waitLeading(controller)
	s.CreateReady("fine")
	s.CreateService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "taken-" + s.NodeName("a")},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	s.Create("taken")
	s.WaitNotReady("taken", v1alpha1.ReasonNameTaken, "already exist")
	s.Create("names", func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames })
	s.WaitNotReady("names", v1alpha1.ReasonNoEndpointSlices, "has not published the pods")

	// tells waits until the metrics have all of these lines.
	tells := func(what string, lines ...string) {
		t.Helper()
		s.Eventually(what, func(ctx context.Context) error {
			_, body, err := controller.Get(ctx, "/metrics")
			if err != nil {
				return err
			}
			ours := slices.DeleteFunc(strings.Split(body, "\n"), func(line string) bool {
				return !strings.HasPrefix(line, "localservice_") && !strings.HasPrefix(line, "leader_election")
			})
			for _, line := range lines {
				if !slices.Contains(ours, line) {
					return fmt.Errorf("there is no line %s in\n%s", line, strings.Join(ours, "\n"))
				}
			}
			return nil
		})
	}
	condition := func(name, reason, status string, count int) string {
		return fmt.Sprintf(`localservice_localservices{condition=%q,reason=%q,status=%q} %d`, name, reason, status,
			count)
	}
	tells("three LocalServices",
		condition("Ready", v1alpha1.ReasonNoPodsReady, "True", 1),
		condition("Ready", v1alpha1.ReasonNameTaken, "False", 1),
		condition("Ready", v1alpha1.ReasonNoEndpointSlices, "False", 1),
		condition("Ready", v1alpha1.ReasonWriteFailed, "False", 0),
		condition("Conflicted", "", "True", 1),
		condition("Conflicted", "", "False", 2),
		`localservice_objects{mode="Services"} 2`,
		`localservice_objects{mode="Hostnames"} 1`,
		`localservice_services{state="desired"} 6`, // two of each node, and two with the names
		`localservice_services{state="in_place"} 5`,
		`localservice_names{state="desired"} 6`,
		`localservice_names{state="ready"} 0`,
		`localservice_service_writes_total{action="Create",result="success"} 5`,
		`localservice_service_writes_total{action="Replace",result="success"} 0`,
		`localservice_node_fanout_seconds_count 0`,
		`leader_election_master_status{name="lease"} 1`)

	node := s.AddNodes("c")[0]
	s.CreatePod("pod", "", map[string]string{"app": "fine"})
	s.BindPod("pod", node, nil)
	tells("a node and a pod",
		`localservice_services{state="in_place"} 7`,
		"localservice_node_fanout_seconds_count 2", // of fine and of taken, of which the other name is still taken
		"localservice_pod_label_seconds_count 1",
		`localservice_pod_label_writes_total{result="success"} 1`)

	_, body, err := controller.Get(t.Context(), "/metrics")
	s.Must(err)
	ages := map[string]bool{}
	for _, m := range cacheAge.FindAllStringSubmatch(body, -1) {
		age, err := strconv.ParseFloat(m[2], 64)
		ages[m[1]] = err == nil && age >= 0 && age < 120
	}
	want := map[string]bool{"localservices.localservice.dev": true, "nodes": true, "services": true, "pods": true,
		"endpointslices.discovery.k8s.io": true}
	if err := framework.Equal("caches that are not old", ages, want); err != nil {
		t.Error(err)
	}
	for _, name := range []string{`workqueue_depth{name="localservice"}`, `workqueue_depth{name="hostnames"}`,
		`workqueue_depth{name="pod"}`, `workqueue_retries_total{name="localservice"}`, "workqueue_adds_total{",
		"workqueue_queue_duration_seconds_bucket{", "workqueue_work_duration_seconds_bucket{",
		"workqueue_unfinished_work_seconds{", "workqueue_longest_running_processor_seconds{",
		"rest_client_requests_total{", "rest_client_request_duration_seconds_bucket{",
		"rest_client_request_size_bytes_bucket{", "rest_client_response_size_bytes_bucket{",
		`localservice_status_writes_total{result="success"}`, "localservice_pods_labelled_at_binding 0\n",
		"kubernetes_build_info{", "process_resident_memory_bytes ",
		"process_cpu_seconds_total ", "process_open_fds ", "go_goroutines ", "go_memstats_heap_inuse_bytes "} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("there is no %s", name)
		}
	}
}
