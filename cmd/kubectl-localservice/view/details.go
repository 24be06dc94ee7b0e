package view

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// Details holds everything that is known about one cell.
type Details struct {
	*diagnose.Node
	// Events are the newest ones of the pods, the Services and the LocalService, the newest first.
	Events []Event `json:"events"`
	// EventsProblem says why there are no events to show.
	EventsProblem string `json:"eventsProblem,omitempty"`
}

// Event is an event of a pod, a Service or the LocalService.
type Event struct {
	Time    time.Time `json:"time"`
	Type    string    `json:"type"`
	Object  string    `json:"object"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
}

// maxEvents limits the events that the page shows for a cell.
const maxEvents = 10

// NewEvents returns the newest events of a list, the newest first.
func NewEvents(list []corev1.Event) []Event {
	events := make([]Event, 0, len(list))
	for i := range list {
		e := &list[i]
		count, last := e.Count, cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
		if e.Series != nil {
			count, last = e.Series.Count, e.Series.LastObservedTime.Time
		}
		about := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
		events = append(events, Event{Time: last, Type: e.Type, Object: about, Reason: e.Reason, Message: e.Message,
			Count: max(count, 1)})
	}
	slices.SortStableFunc(events, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return events[:min(len(events), maxEvents)]
}
