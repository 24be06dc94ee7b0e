package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// Outcome records what became of the changes of a plan.
type Outcome struct {
	// Made lists the Services whose changes were made, by action.
	Made map[plan.Action][]string
	// Refused lists the writes that the API server refused, stored differently (ContestedError), or did not answer in
	// time: in this turn, or earlier and not due yet. In mode Hostnames, it includes those of EndpointSlices.
	Refused []error
	// RetryAfter is the time until the first of the refused writes is retried; 0 if there are none.
	RetryAfter time.Duration
	// Denied is true if RBAC denies writes, but has not done so for long enough to be reported: see IsDenied.
	Denied bool
	// Failed lists the writes that failed for reasons that may pass in a moment. Stale lists those that failed
	// because a cache lagged: the next plan, from a newer cache, will be right.
	Failed, Stale []error
	// More is true if the remaining changes follow at once, in the next turn, which also retries what failed in this
	// one.
	More bool
	// GaveUp is true if the writes of an action were given up because too many failed in a row. The next turn may
	// make nothing.
	GaveUp bool
	// Stopped is the reason why nothing more was tried, and nothing is reported: the error of the context or of a
	// live read, or that the LocalService was changed or is being deleted.
	Stopped error
}

// Stored returns how many Services were created or changed, but not deleted.
func (o *Outcome) Stored() (n int) {
	for action, names := range o.Made {
		if action != plan.Delete {
			n += len(names)
		}
	}
	return n
}

// Err returns the error of the sync of a LocalService: nil unless a write failed that may soon succeed. Refusals have
// their own backoff.
func (o *Outcome) Err(localService types.NamespacedName) error {
	errs := slices.Concat(o.Failed, o.Stale)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("fan out LocalService %s: %s", localService, Summarize(errs))
}

// WriteError describes a failed write of a Service, or of an object of another Kind.
type WriteError struct {
	Action          plan.Action
	Kind            string // "" for Service
	Namespace, Name string
	Node            string // the node that the object is for; "" for none
	Err             error
}

// What describes what was attempted, on which kind of object: "create Service".
func (e *WriteError) What() string {
	return strings.ToLower(string(e.Action)) + " " + cmp.Or(e.Kind, "Service")
}

// Error describes what was attempted, on which object, and why it failed.
func (e *WriteError) Error() string {
	return fmt.Sprintf("%s %s/%s: %v", e.What(), e.Namespace, e.Name, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// IsDenied reports whether RBAC itself denied a request, rather than admission. For about a second after an API
// server has started, it knows no roles and denies everything. Only the text of the answer shows the difference:
// `User "name" cannot verb resource "name" in API group …`.
func IsDenied(err error) bool {
	text := err.Error()
	return apierrors.IsForbidden(err) && strings.Contains(text, `User "`) && strings.Contains(text, `" cannot `)
}

// EndpointSliceKind is the Kind of a WriteError about an EndpointSlice.
const EndpointSliceKind = "EndpointSlice"

// ContestedError lists fields of an object that something else sets: in the request that writes them, as an admission
// webhook or policy does, or soon after it. It counts as a refusal.
type ContestedError struct {
	Object string // such as "Service demo-a"
	Fields []string
	// IsUndone is true if the fields were set after the write. Manager is the field manager that set them; "" if that is
	// not known.
	IsUndone bool
	Manager  string
}

func (e *ContestedError) Error() string {
	fields := strings.Join(e.Fields, ", ")
	switch {
	case e.Manager != "":
		return fmt.Sprintf("something else (field manager %q) sets %s after the controller has set it", e.Manager, fields)
	case e.IsUndone:
		return fmt.Sprintf("something else sets %s after the controller has set it", fields)
	}
	return "something else sets " + fields
}
