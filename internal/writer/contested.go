package writer

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// ContestedFor is how long a contested field is left alone, before one write finds out whether it still is.
	ContestedFor = 10 * time.Minute
	// ContestedRecheck is how often it is looked whether that time is over.
	ContestedRecheck = time.Minute
	// Of more than maxContested LocalServices some are written once more than needed.
	maxContested = 10000
)

// Contested knows the fields that somebody else sets as often as they are written, as the API server's answers have
// shown: without it, they would be written at every sync. A LocalService whose spec has changed starts afresh.
type Contested struct{ fields *utilcache.LRUExpireCache }

func newContested() Contested { return Contested{utilcache.NewLRUExpireCache(maxContested)} }

// Fields returns the names of the contested fields of a LocalService's Services, sorted.
func (c Contested) Fields(ls *v1alpha1.LocalService) []string {
	known, _ := c.fields.Get(contestedKey(ls))
	fields, _ := known.([]string)
	return fields
}

// Add adds fields to those of a LocalService.
func (c Contested) Add(ls *v1alpha1.LocalService, fields sets.Set[string]) {
	c.fields.Add(contestedKey(ls), sets.List(fields.Clone().Insert(c.Fields(ls)...)), ContestedFor)
}

func contestedKey(ls *v1alpha1.LocalService) string {
	return fmt.Sprintf("%s/%d", ls.UID, ls.Generation)
}

// isContested reports whether the API server stores a Service in another way than it was asked to, and takes that in.
func (w *execution) isContested(change *plan.Change, stored *corev1.Service) bool {
	fields := change.Template.Mismatches(stored, change.Node)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out.Contested.Insert(fields...)
	return len(fields) > 0
}
