package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// story records what happened in a world, in order. It is recorded as it happens, and formatted only if something is
// wrong.
type story struct {
	mu      sync.Mutex
	begun   time.Time
	events  []func() string
	failure *Failure // the first
}

func newStory(server *APIServer) *story {
	s := &story{begun: time.Now()}
	server.Observe(func(w Write) {
		if w.Resource != "leases" && w.Resource != "events" && w.By != userName {
			s.add("  %s: %s", w.By, &w)
		}
	})
	server.refusals = append(server.refusals, func(r refused) {
		if r.isWork() {
			s.add("  %s: %s is refused: %v", r.by, r.request, r.err)
		}
	})
	return s
}

func (s *story) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.begun)
	s.events = append(s.events, func() string {
		return fmt.Sprintf("%12s  %s", at.Round(time.Millisecond), fmt.Sprintf(format, args...))
	})
}

// fail records that something is wrong.
func (s *story) fail(kind, format string, args ...any) {
	f := &Failure{Kind: kind, What: fmt.Sprintf(format, args...)}
	s.add("WRONG: %s: %s", f.Kind, f.What)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = f
	}
}

func (s *story) hasFailed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure != nil
}

// result returns the first failure, with the story; nil for none.
func (s *story) result() *Failure {
	if s.failure != nil {
		s.failure.Story = s.String()
	}
	return s.failure
}

// String returns what happened last.
func (s *story) String() string {
	const most = 400
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	for _, event := range s.events[max(len(s.events)-most, 0):] {
		fmt.Fprintln(&out, event())
	}
	return out.String()
}

// String returns in short what a write did.
func (w *Write) String() string {
	text := fmt.Sprintf("%s %s %s", w.Verb(), w.Resource, strings.TrimPrefix(w.Key.String(), "/"))
	if w.Verb() == "update" {
		text += " " + differences(w.Before, w.After)
	}
	return text
}

// differences returns what changes from one state of an object to another, as a JSON merge patch.
func differences(before, after Object) string {
	before, after = before.DeepCopyObject().(Object), after.DeepCopyObject().(Object)
	after.SetResourceVersion(before.GetResourceVersion())
	patch, err := jsonpatch.CreateMergePatch(encodeJSON(before), encodeJSON(after))
	utilruntime.Must(err)
	return string(patch)
}
