package plan

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Outcome says what became of the changes of a plan.
type Outcome struct {
	// Made are the names of the Services whose changes were made, by action.
	Made map[Action][]string
	// Refused are the writes that the API server refused, stored differently (ContestedError), or did not answer in
	// time: now, or before and not due yet. In mode Hostnames, it has those of EndpointSlices, too.
	Refused []error
	// RetryAfter is how long the first of the refused writes has to wait, 0 if there are none.
	RetryAfter time.Duration
	// Denied is true if RBAC denies writes, for so short a time that this is not reported: see IsDenied.
	Denied bool
	// Failed are the writes that failed for reasons that may pass in a moment, and Stale those that failed because a
	// cache was behind: the next plan, from a newer cache, will be right.
	Failed, Stale []error
	// More is true if the rest follows at once, in the next turn. What failed in this one is tried again there.
	More bool
	// GaveUp is true if the writes of an action were given up, because too many had failed in a row: a next turn may
	// make nothing.
	GaveUp bool
	// Stopped is why nothing more was tried, and nothing is to be reported: the error of the context or of a live read,
	// or that the LocalService was changed or will be gone.
	Stopped error
}

// Stored returns how many Services were created or changed, and not deleted.
func (o *Outcome) Stored() (n int) {
	for action, names := range o.Made {
		if action != Delete {
			n += len(names)
		}
	}
	return n
}

// WriteError is a write that failed, of a Service or of an object of another Kind.
type WriteError struct {
	Action          Action
	Kind            string // "" for Service
	Namespace, Name string
	Node            string // that the object is for, "" for none
	Err             error
}

// What returns what was attempted, on which kind of object: "create Service".
func (e *WriteError) What() string {
	return strings.ToLower(string(e.Action)) + " " + cmp.Or(e.Kind, "Service")
}

// Error says what was attempted, on which object, and why it failed.
func (e *WriteError) Error() string {
	return fmt.Sprintf("%s %s/%s: %v", e.What(), e.Namespace, e.Name, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// IsDenied reports whether an answer of the API server is RBAC's own denial, and not a refusal by admission. For about a
// second after an API server has started, it knows no roles and denies everything. The answer says so only in its text:
// `User "name" cannot verb resource "name" in API group …`.
func IsDenied(err error) bool {
	text := err.Error()
	return apierrors.IsForbidden(err) && strings.Contains(text, `User "`) && strings.Contains(text, `" cannot `)
}

// EndpointSliceKind is the Kind of a WriteError about an EndpointSlice.
const EndpointSliceKind = "EndpointSlice"

// ContestedError has the names of fields that the API server stored differently than they were written: an admission
// webhook or policy sets them. It counts as a refusal.
type ContestedError struct{ Fields []string }

func (e *ContestedError) Error() string { return "something else sets " + strings.Join(e.Fields, ", ") }
