package writer

import (
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	core "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func now() metav1.Time { return metav1.NewTime(time.Now()) }

// newStatuses makes Dependencies whose API server answers with an error, or with the last LocalService that was sent.
func newStatuses(f *fixture, sent *v1alpha1.LocalService, answer *error) (s *Dependencies, events *[]string) {
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("update", "localservices/status", func(a core.Action) (bool, runtime.Object, error) {
		object := a.(core.UpdateAction).GetObject().(*unstructured.Unstructured)
		*sent = v1alpha1.LocalService{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, sent); err != nil {
			f.t.Error(err)
		}
		f.requests = append(f.requests, a.GetVerb())
		return true, object, *answer
	})
	s, events = new(f.deps), new([]string)
	s.Dynamic = client
	s.Record = func(_ runtime.Object, eventType, reason, _ string) {
		*events = append(*events, eventType+" "+reason)
	}
	return s, events
}

// TestStatus: a status is written whole, to the LocalService that it is about, and not to a successor of the same name.
// The cache must observe it.
func TestStatus(t *testing.T) {
	after := v1alpha1.LocalServiceStatus{ObservedGeneration: 2, Nodes: 3, Services: 2, ReadyNodes: 1, Ready: "1/3",
		Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: "X", Message: "y",
			ObservedGeneration: 2, LastTransitionTime: metav1.Unix(1, 0).Rfc3339Copy()}}}
	resource, no := v1alpha1.Resource("localservices"), errors.New("no")
	for name, c := range map[string]struct {
		answer       error
		fails, stale bool
	}{
		"written":               {nil, false, false},
		"deleted":               {apierrors.NewNotFound(resource, "demo"), false, false},
		"deleted and recreated": {apierrors.NewConflict(resource, "demo", no), true, true},
		"refused":               {apierrors.NewForbidden(resource, "demo", no), true, false},
		"not answered":          {errors.New("no answer"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			var sent v1alpha1.LocalService
			s, _ := newStatuses(f, &sent, &c.answer)
			err := s.writeStatus(t.Context(), f.ls, &after)
			if (err != nil) != c.fails || reconcile.IsStale(err) != c.stale {
				t.Errorf("%v", err)
			}
			if diff := cmp.Diff(after, sent.Status); diff != "" || sent.ResourceVersion != f.ls.ResourceVersion ||
				sent.Name != f.ls.Name {
				t.Errorf("to %s (version %q) (-want +got):\n%s", sent.Name, sent.ResourceVersion, diff)
			}
			isObserved := f.deps.Observed.SinceWrite(cache.KeyOf(f.ls), f.deps.Caches.LocalServices) < time.Hour
			if isObserved != (c.answer == nil) {
				t.Errorf("the cache must observe it: %t", isObserved)
			}
		})
	}
}

// TestStatusNumbers: a status that differs only in numbers is written once a second, any other at once, and one that
// does not differ never. A condition that begins to need attention causes one event.
func TestStatusNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		var sent v1alpha1.LocalService
		var answer error
		s, events := newStatuses(f, &sent, &answer)
		type found struct {
			plan    plan.Plan
			outcome plan.Outcome
		}
		of := func(nodes, inPlace int) found {
			return found{plan: plan.Plan{Nodes: nodes, InPlace: inPlace}}
		}
		type written struct {
			Later     time.Duration
			IsWritten bool
			Events    []string
		}
		expect := func(when string, what found, wantLater time.Duration, isWritten bool, want ...string) {
			t.Helper()
			before := f.ls.DeepCopy()
			after := status.Of(f.ls, &what.plan, &what.outcome)
			later, err := s.WriteStatus(t.Context(), f.ls, after, what.outcome.More)
			got := written{later, len(f.took()) > 0, *events}
			if diff := cmp.Diff(written{wantLater, isWritten, want}, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
			}
			if diff := cmp.Diff(before, f.ls); diff != "" {
				t.Errorf("%s: the LocalService was changed: %s", when, diff)
			}
			if *events = nil; isWritten {
				f.ls = f.ls.DeepCopy()
				f.ls.Status = sent.Status
			}
		}
		expect("at first", of(3, 3), 0, true)
		expect("the same", of(3, 3), 0, false)
		expect("other numbers", of(4, 4), NumbersInterval, false)
		time.Sleep(NumbersInterval - 1)
		expect("almost a second later", of(4, 4), 1, false)
		time.Sleep(time.Nanosecond)
		expect("a second later", of(4, 4), 0, true)
		writing := of(4, 2)
		writing.outcome.More = true
		expect("writing", writing, 0, true)
		writing.plan.InPlace = 3
		expect("writing more", writing, maxTurn, false)
		time.Sleep(maxTurn)
		expect("five seconds later", writing, 0, true)
		refused := of(4, 3)
		refused.outcome.Refused = []error{errors.New("no")}
		expect("refused", refused, 0, true, "Warning WriteFailed")
		expect("as before", refused, 0, false)
		refused.plan.InPlace = 2
		expect("with other numbers", refused, NumbersInterval, false)
		f.ls.Generation++
		expect("of another generation", refused, 0, true)
		answer = errors.New("no answer")
		_, err := s.WriteStatus(t.Context(), f.ls, status.Of(f.ls, &plan.Plan{}, &plan.Outcome{}), false)
		if err == nil {
			t.Error("no error although the API server does not answer")
		}
	})
}

// TestStatusIsLogged: the log has a line when a condition begins to need attention, and one when it no longer does.
func TestStatusIsLogged(t *testing.T) {
	f := newFixture(t, 1)
	var sent v1alpha1.LocalService
	s, _ := newStatuses(f, &sent, new(error))
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	logged := logger.GetSink().(ktesting.Underlier).GetBuffer()
	write := func(inPlace int, refused ...error) {
		t.Helper()
		after := status.Of(f.ls, &plan.Plan{Nodes: 1, InPlace: inPlace, Ready: 1}, &plan.Outcome{Refused: refused})
		if _, err := s.WriteStatus(klog.NewContext(t.Context(), logger), f.ls, after, false); err != nil {
			t.Fatal(err)
		}
		f.ls = f.ls.DeepCopy()
		f.ls.Status = sent.Status
	}
	for range 2 {
		write(1)
	}
	for range 2 {
		write(0, errors.New("quota"))
	}
	for range 2 {
		write(1)
	}
	changed := regexp.MustCompile(`Condition changed.* (reason="\w+" message=".{8})`)
	var got []string
	for _, line := range changed.FindAllStringSubmatch(logged.String(), -1) {
		got = append(got, line[1])
	}
	want := []string{`reason="WriteFailed" message="1 write `, `reason="ServicesInPlace" message="every se`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want a line about the failure, and one about its end (-want +got):\n%s\n%s", diff, logged.String())
	}
}
