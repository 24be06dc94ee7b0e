package simulation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// story is what happened in a world, in order. It is recorded as it happens, and formatted only if something is wrong.
type story struct {
	mu     sync.Mutex
	begun  time.Time
	events []func() string
}

func newStory(server *APIServer) *story {
	s := &story{begun: time.Now()}
	server.Observe(func(w Write) {
		if w.Resource != "leases" && w.Resource != "events" && w.By != userName {
			s.add("  %s: %s", w.By, &w)
		}
	})
	server.refusals = append(server.refusals, func(r Refused) {
		if r.Resource != "leases" && r.Resource != "events" && !r.DryRun {
			s.add("  %s: %s %s %s is refused: %v", r.By, r.Verb, r.Resource, r.Key, r.Err)
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
		text += " " + strings.Join(differences(w.Before, w.After), ", ")
	}
	return text
}

// differences returns the paths of the fields in which two states of an object differ.
func differences(before, after Object) []string {
	var out []string
	a, b := toFields(before), toFields(after)
	walk("", a, b, &out)
	slices.Sort(out)
	return out
}

func walk(path string, a, b any, out *[]string) {
	am, aIsMap := a.(map[string]any)
	bm, bIsMap := b.(map[string]any)
	if !aIsMap || !bIsMap {
		if fmt.Sprint(a) != fmt.Sprint(b) && !strings.HasSuffix(path, "resourceVersion") {
			value := fmt.Sprint(b)
			*out = append(*out, strings.TrimPrefix(path, ".")+"="+value[:min(len(value), 100)])
		}
		return
	}
	for key := range am {
		walk(path+"."+key, am[key], bm[key], out)
	}
	for key := range bm {
		if _, known := am[key]; !known {
			walk(path+"."+key, nil, bm[key], out)
		}
	}
}
