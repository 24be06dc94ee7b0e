package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestMetrics tests that the metrics are served, ours and those of Kubernetes' libraries. What ours count is tested in
// internal/metrics and with the controllers.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "metrics")
	controller := s.NewController(t, "-leader-elect", "-leader-election-namespace="+framework.ControllerNamespace)
	_, err := controller.WaitLog(s.Ctx(), `"Leading"`)
	s.Must(err)
	s.Create("demo")
	s.WaitNotReady("demo", v1alpha1.ReasonNoNodesSelected, "") // Known before its nodes, it waits for each.
	s.AddNodes("a")
	s.WaitStatusNodes("demo", 1)
	node := s.AddNodes("b")[0]
	s.CreatePod("pod", "", app)
	s.BindPod("pod", node, nil)
	s.WaitLabelled("pod", node)
	for _, line := range []string{
		`localservice_localservices{condition="Ready",reason="NoneAnswering",status="True"} 1`,
		`localservice_services{state="in_place"} 2`,
		`localservice_names{state="desired"} 2`, `leader_election_master_status{name="local-service-controller"} 1`,
		`localservice_service_writes_total{action="Create",result="success"} 2`,
		`localservice_pod_label_writes_total{result="success"} 1`,
		`localservice_namespace_services{cluster_ips="false",namespace="` + s.Namespace + `"} 2`,
		`localservice_status_writes_total{result="success"} `,
		"localservice_node_fanout_seconds_count 2", "localservice_pod_label_seconds_count 1",
		`workqueue_depth{name="localservice"}`, `workqueue_depth{name="hostnames"}`, `workqueue_depth{name="pod"}`,
		`workqueue_retries_total{name="localservice"}`, "workqueue_adds_total{",
		"workqueue_queue_duration_seconds_bucket{", "workqueue_work_duration_seconds_bucket{",
		"workqueue_unfinished_work_seconds{", "workqueue_longest_running_processor_seconds{",
		"rest_client_requests_total{", "rest_client_request_duration_seconds_bucket{",
		"rest_client_request_size_bytes_bucket{", "rest_client_response_size_bytes_bucket{", "kubernetes_build_info{",
		"process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_open_fds ", "go_goroutines ",
		"go_memstats_heap_inuse_bytes ",
	} {
		s.Eventually("there is "+line, func(ctx context.Context) error {
			_, body, err := controller.Get(ctx, "/metrics")
			if err == nil && !strings.Contains(body, "\n"+line) {
				err = fmt.Errorf("it is not in\n%s", body)
			}
			return err
		})
	}
}
