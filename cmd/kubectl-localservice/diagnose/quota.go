package diagnose

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// quota is a ResourceQuota that is used up, so that Services wait.
type quota struct {
	name, used, hard string
	waiting          int // Services
}

// exceededQuota is how the API server says so. It is in the status, so that no permission for quotas is needed; it
// decides only how that is told.
var exceededQuota = regexp.MustCompile(
	`exceeded quota: ([a-z0-9.-]+), requested: \S+, used: [^\s=]+=([^\s,;]+)\S*, limited: [^\s=]+=([^\s,;]+)`)

// quotaOf returns the quota that the status of a LocalService names, nil if there is none.
func quotaOf(ls *v1alpha1.LocalService) *quota {
	ready := readyOf(ls)
	if ready.Reason != v1alpha1.ReasonWriteFailed || !isRefused(ls) {
		return nil
	}
	if found := exceededQuota.FindStringSubmatch(ready.Message); found != nil {
		return &quota{name: found[1], used: found[2], hard: found[3]}
	}
	return nil
}

// cause is what all names share that wait for the quota.
func (q *quota) cause() string { return fmt.Sprintf("quota %q is used up", q.name) }

func (q *quota) message() string {
	message := fmt.Sprintf("%s (%s of %s): raise it", q.cause(), q.used, q.hard)
	switch {
	case q.waiting == 1:
		message += "; 1 Service waits"
	case q.waiting > 1:
		message += "; " + status.Count(q.waiting, "Service") + " wait"
	}
	return message
}

// title is a text as the beginning of a sentence.
func title(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
