package status

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// The scale that Kubernetes is tested with. The thresholds at
// https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md give the first
// two. The third is where pods begin to fail to start, because each Service with a cluster IP becomes several
// environment variables of every pod of its namespace: https://github.com/kubernetes/kubernetes/issues/92615.
const (
	servicesPerCluster            = 10000
	servicesPerNamespace          = 5000
	clusterIPServicesPerNamespace = 1000
)

// nearCapacity reports whether LocalServices have more Services than a cluster is known to support. The message has no
// numbers that change with every Service.
func nearCapacity(c *plan.Capacity) metav1.Condition {
	out := metav1.Condition{Type: v1alpha1.ConditionNearCapacity, Status: metav1.ConditionTrue}
	switch {
	case c.ClusterIPsInNamespace > clusterIPServicesPerNamespace:
		out.Reason = v1alpha1.ReasonManyEnvironmentVariables
		out.Message = fmt.Sprintf("the LocalServices of this namespace have more than %d Services with a cluster IP; "+
			"each becomes environment variables of every new pod, and pods may fail to start: use headless Services "+
			"(clusterIP: None), or enableServiceLinks: false in the pods", clusterIPServicesPerNamespace)
	case c.InNamespace > servicesPerNamespace:
		out.Reason = v1alpha1.ReasonManyServices
		out.Message = fmt.Sprintf("the LocalServices of this namespace have more than %d Services, the most that "+
			"Kubernetes is tested with: let nodeSelector choose fewer nodes, or use another namespace",
			servicesPerNamespace)
	case c.InCluster > servicesPerCluster:
		out.Reason = v1alpha1.ReasonManyServices
		out.Message = fmt.Sprintf("the LocalServices of the cluster have more than %d Services, the most that "+
			"Kubernetes is tested with: let nodeSelector choose fewer nodes", servicesPerCluster)
	default:
		out.Status, out.Reason = metav1.ConditionFalse, v1alpha1.ReasonEnoughCapacity
		out.Message = "LocalServices have no more Services than Kubernetes is tested with"
	}
	return out
}
