package writer

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestAnswersWithoutStatus: what a load balancer answers in place of the API server is transient, whatever its code. So
// it refuses no write, and shows of nothing that it is gone.
func TestAnswersWithoutStatus(t *testing.T) {
	for code := http.StatusBadRequest; code < 600; code++ {
		err := apierrors.NewGenericServerResponse(code, http.MethodPost, corev1.Resource("services"), "demo-a", "<html>",
			0, true)
		if class := ClassOf(err); class != Transient || isGone(err) || isAbsent(err) {
			t.Errorf("%d: %s, gone: %t", code, class, isGone(err))
		}
	}
}
