package writer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func withLoadBalancer(ls *v1alpha1.LocalService) {
	ls.Spec.Type, ls.Spec.ClusterIP, ls.Spec.LoadBalancerClass = "LoadBalancer", "", new("a")
}

// TestReplacePhases: a Service is deleted only after the API server has confirmed that it would accept its successor,
// and that this would not have to be replaced, too.
func TestReplacePhases(t *testing.T) {
	const try, trial, remove, create = "try demo-a", "try demo-a-", "delete demo-a", "create demo-a"
	for name, c := range map[string]struct {
		answers  map[string]error
		admit    func(*corev1.Service) // changes a Service as admission does
		requests []string
		outcome  string // made, refused, stale, contested
	}{
		"accepted": {nil, nil, []string{try, trial, remove, create}, "1 0 0 []"},
		"refused":  {map[string]error{try: forbidden}, nil, []string{try}, "0 1 0 []"},
		"refused under a name that is free": {map[string]error{trial: forbidden}, nil, []string{try, trial},
			"0 1 0 []"},
		"stored as another one": {nil, func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("x") },
			[]string{try, trial}, "0 1 0 [loadBalancerClass]"},
		"stored as another one that can be updated": {nil,
			func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true },
			[]string{try, trial, remove, create}, "1 0 0 []"},
		"stored as another one in spite of the dry run": {nil, func(s *corev1.Service) {
			if s.Name == "demo-a" {
				s.Spec.LoadBalancerClass = new("x")
			}
		}, []string{try, trial, remove, create}, "0 1 0 [loadBalancerClass]"},
		"changed meanwhile": {map[string]error{remove: conflict}, nil, []string{try, trial, remove}, "0 0 1 []"},
		"gone meanwhile": {map[string]error{remove: notFound}, nil, []string{try, trial, remove, create},
			"1 0 0 []"},
		"refused in spite of the dry run": {map[string]error{create: forbidden}, nil,
			[]string{try, trial, remove, create, "create demo-a of before"}, "0 1 0 []"},
		"not accepted now": {map[string]error{create: apierrors.NewTooManyRequests("", 1)}, nil,
			[]string{try, trial, remove, create, "create demo-a of before"}, "0 1 0 []"},
		"made by somebody else meanwhile": {map[string]error{create: exists}, nil,
			[]string{try, trial, remove, create}, "0 0 1 []"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1, withLoadBalancer)
			f.answer = func(request string, service *corev1.Service) error {
				if c.admit != nil && service != nil {
					c.admit(service)
				}
				if err, found := c.answers[request]; found || request != try {
					return err
				}
				return exists
			}
			out, requests := f.write(f.changes(plan.Replace, "a"))
			got := fmt.Sprint(len(out.Made[plan.Replace]), len(out.Refused), len(out.Stale),
				sets.List(out.contested()))
			if !slices.Equal(requests, c.requests) || got != c.outcome {
				t.Errorf("%s after %v, want %s after %v", got, requests, c.outcome, c.requests)
			}
		})
	}
}

// TestTrialRefused: a trial that is refused is reported under the name of the Service.
func TestTrialRefused(t *testing.T) {
	f := newFixture(t, 1, withLoadBalancer)
	f.answer = func(request string, service *corev1.Service) error {
		if request == "try demo-a" {
			return exists
		}
		return apierrors.NewForbidden(services, service.Name, errors.New("quota"))
	}
	out, _ := f.write(f.changes(plan.Replace, "a"))
	if len(out.Refused) != 1 || !strings.HasSuffix(out.Refused[0].Error(), `services "demo-a" is forbidden: quota`) {
		t.Errorf("refused %v", out.Refused)
	}
}

// TestFreeName: a name for a trial is valid, however long the name of the Service is, and another one each time.
func TestFreeName(t *testing.T) {
	for _, length := range []int{1, 57, 58, validation.DNS1035LabelMaxLength} {
		name := strings.Repeat("x", length)
		got := freeName(name)
		if problems := validation.IsDNS1035Label(got); len(problems) > 0 || got == freeName(name) {
			t.Errorf("%q: %v", got, problems)
		}
	}
}

// TestReplaceComesLast: no Service is replaced while other writes fail, and nothing else is deleted if a replacement
// fails.
func TestReplaceComesLast(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		at   string
		want []string
	}{
		"all is well": {nil, "", []string{"create demo-new", "try demo-a", "delete demo-a", "create demo-a",
			"try demo-b", "delete demo-b", "create demo-b"}},
		"refused":                  {forbidden, "create demo-new", []string{"create demo-new"}},
		"denied, but not for long": {denied(), "create demo-new", []string{"create demo-new"}},
		"not answered":             {errors.New("no answer"), "create demo-new", []string{"create demo-new"}},
		"stale":                    {conflict, "create demo-new", []string{"create demo-new"}},
		"a replacement is refused": {forbidden, "try demo-a", []string{"create demo-new", "try demo-a"}},
		"a replacement is contested": {&plan.ContestedError{Fields: []string{"type"}}, "try demo-a",
			[]string{"create demo-new", "try demo-a"}},
		"a replacement is not answered": {errors.New("no answer"), "delete demo-a",
			[]string{"create demo-new", "try demo-a", "delete demo-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 1)
			f.refusing(c.err, c.at)
			f.deps.Shuffle = func(n int, swap func(i, j int)) { // Replacements keep their order.
				if n > 1 {
					swap(0, 1)
				}
			}
			out, requests := f.write(f.changes(plan.Replace, "a", "b"), f.changes(plan.Create, "new"))
			// What got no answer may be made in the next turn.
			if !slices.Equal(requests, c.want) || out.More != strings.HasSuffix(name, "replacement is not answered") {
				t.Errorf("requests %v, want %v; more: %t", requests, c.want, out.More)
			}
		})
	}
}

// TestContestedReplacementIsRemembered: a replacement that is not tried while something else is refused is contested
// all the same.
func TestContestedReplacementIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.refusing(&plan.ContestedError{Fields: []string{"type"}}, "try demo-a")
		f.write(f.changes(plan.Replace, "a"))
		time.Sleep(reconcile.MaxBackoff)
		f.refusing(forbidden, "create demo-new")
		out, requests := f.write(f.changes(plan.Replace, "a"), f.changes(plan.Create, "new"))
		if !slices.Equal(requests, []string{"create demo-new"}) || !out.contested().Has("type") {
			t.Errorf("%v, %+v", requests, out)
		}
	})
}

// TestCreateAfterFailedReplacement: if the successor of a deleted Service was refused, and the Service could not be
// restored, a planned creation of it does not wait.
func TestCreateAfterFailedReplacement(t *testing.T) {
	f := newFixture(t, 1)
	f.refusing(forbidden, "create")
	if out, requests := f.write(f.changes(plan.Replace, "a")); len(out.Refused) != 1 || len(requests) != 4 {
		t.Errorf("%v: %+v", requests, out)
	}
	f.refusing(nil)
	if out, requests := f.write(f.changes(plan.Create, "a")); len(requests) != 1 || !out.IsComplete() {
		t.Errorf("%v: %+v", requests, out)
	}
}

// TestRemovalsGoByTheCache: the checks before a removal may take time. The Service stays if the cache has observed by
// then that the LocalService is not the planned one any more, or if the program is stopped.
func TestRemovalsGoByTheCache(t *testing.T) {
	for name, change := range map[string]func(f *fixture, ls *v1alpha1.LocalService, stop func()){
		"another spec": func(f *fixture, ls *v1alpha1.LocalService, _ func()) { ls.Generation++; f.cache(ls) },
		"being deleted": func(f *fixture, ls *v1alpha1.LocalService, _ func()) {
			ls.DeletionTimestamp = new(now())
			f.cache(ls)
		},
		"stopped": func(_ *fixture, _ *v1alpha1.LocalService, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			for action, want := range map[plan.Action][]string{plan.Delete: nil, plan.Replace: {"try demo-a"}} {
				f := newFixture(t, 1)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				f.onNode = func(string) error { change(f, f.ls.DeepCopy(), stop); return notFound }
				f.answer = func(request string, _ *corev1.Service) error {
					if request == "try demo-a" {
						change(f, f.ls.DeepCopy(), stop)
					}
					return nil
				}
				out := f.deps.WriteServices(ctx, f.ls, planOf(f.changes(action, "a", "b")),
					always)
				if requests := f.took(); !slices.Equal(requests, want) || len(out.Made) > 0 || out.Stopped == nil ||
					len(out.Stale) != 1 && name != "stopped" {
					t.Errorf("%s: %v, want %v: %+v", action, requests, want, out)
				}
			}
		})
	}
}
