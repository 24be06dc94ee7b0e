package writer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/reconcile"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// slicesFixture is a fixture for a LocalService with mode Hostnames that has one EndpointSlice to copy, s1.
type slicesFixture struct {
	*fixture
	names   *plan.Names
	changes map[plan.Action]plan.CopyChange

	// isThere is true if the API server has the two Services, isGoing if the source is being deleted.
	isThere, isGoing bool
	// hasSource is the error of a request for s1, nil if it exists, and live is s1-named.
	hasSource error
	live      *discoveryv1.EndpointSlice
	// answers has the errors of requests, and admit changes an EndpointSlice as admission does.
	answers map[string]error
	admit   func(*discoveryv1.EndpointSlice)
}

func newSlicesFixture(t *testing.T) *slicesFixture {
	t.Helper()
	f := &slicesFixture{fixture: newFixture(t, 1, objects.HostnamesMode), isThere: true, hasSource: notFound}
	all := map[string]*corev1.Service{}
	for _, template := range f.templates {
		s := objects.Stored(template.Service(""))
		all[s.Name] = s
	}
	f.names = plan.NamesOf(f.ls, v1alpha1.DefaultNodeLabelKey, []string{"a"}, nil,
		func(name string) *corev1.Service { return all[name] })
	s1 := objects.SourceSlice(f.names.Source.GetName(), f.names.Source.UID, "s1", "a")
	f.names.Slices = map[string]*discoveryv1.EndpointSlice{"s1": s1}
	create := f.names.Change("s1")
	f.live = f.names.Copy(&create)
	f.live.UID, f.live.ResourceVersion = "uid-s1-named", "3"
	current := f.live
	f.changes = map[plan.Action]plan.CopyChange{plan.Create: create,
		plan.Update: {Action: plan.Update, Name: "s1-named", Source: s1, Current: current},
		plan.Delete: {Action: plan.Delete, Name: "s1-named", Current: current}}
	f.kube.PrependReactor("*", "endpointslices", f.reactSlice)
	f.kube.PrependReactor("list", "services", func(core.Action) (bool, runtime.Object, error) {
		list := &corev1.ServiceList{}
		if f.isThere {
			list.Items = []corev1.Service{{ObjectMeta: metav1.ObjectMeta{UID: f.names.Published.UID}},
				{ObjectMeta: metav1.ObjectMeta{UID: f.names.Source.UID}}}
		}
		if f.isGoing {
			list.Items[1].DeletionTimestamp = new(metav1.Now())
		}
		return true, list, f.answers["list"]
	})
	return f
}

func (f *slicesFixture) reactSlice(a core.Action) (bool, runtime.Object, error) {
	var stored *discoveryv1.EndpointSlice
	request := a.GetVerb()
	switch a := a.(type) {
	case core.GetActionImpl:
		if a.Name == "s1" {
			return true, &discoveryv1.EndpointSlice{}, f.hasSource
		}
		return true, f.live, f.answers["get"]
	case core.CreateActionImpl:
		stored = a.Object.(*discoveryv1.EndpointSlice).DeepCopy()
		stored.UID = "uid-s1-named"
	case core.UpdateActionImpl:
		stored = a.Object.(*discoveryv1.EndpointSlice).DeepCopy()
		request += fmt.Sprintf(" %s@%s", stored.UID, stored.ResourceVersion)
	case core.DeleteActionImpl:
		f.checkPreconditions(&a)
	}
	f.requests = append(f.requests, request)
	if stored != nil {
		stored.ResourceVersion = "8"
		if f.admit != nil {
			f.admit(stored)
		}
	}
	return true, stored, f.answers[a.GetVerb()]
}

// isObserved reports whether the cache must observe a write of s1.
func (f *slicesFixture) isObserved() bool {
	return f.deps.Observed.SinceWrite(SliceKey("default", "s1"), f.deps.Caches.HostnameSlices) < time.Hour
}

// TestWriteSlice: the requests of a change of an EndpointSlice, and its error if it is not made.
func TestWriteSlice(t *testing.T) {
	const update = "update uid-s1-named@3"
	no := errors.New("no answer")
	for name, c := range map[string]struct {
		action  plan.Action
		edit    func(*slicesFixture)
		want    []string
		outcome string // "", refused, contested, stale, failed or, for a refusal that is not reported, terminating
	}{
		"created":                {plan.Create, nil, []string{"create"}, ""},
		"updated":                {plan.Update, nil, []string{update}, ""},
		"deleted":                {plan.Delete, nil, []string{"delete"}, ""},
		"the Service is gone":    {plan.Create, func(f *slicesFixture) { f.isThere = false }, nil, "stale"},
		"is the Service there?":  {plan.Create, answer("list", no), nil, "failed"},
		"not current":            {plan.Create, func(f *slicesFixture) { f.fixture.live.Generation++ }, nil, "stale"},
		"not current, to delete": {plan.Delete, func(f *slicesFixture) { f.fixture.live.Generation++ }, nil, "stale"},
		"the Source is going":    {plan.Delete, func(f *slicesFixture) { f.isGoing = true }, nil, "stale"},
		"the source is there":    {plan.Delete, func(f *slicesFixture) { f.hasSource = nil }, nil, "stale"},
		"is the source gone?":    {plan.Delete, func(f *slicesFixture) { f.hasSource = no }, nil, "failed"},
		"creation refused":       {plan.Create, answer("create", forbidden), []string{"create"}, "refused"},
		"creation in vain":       {plan.Create, answer("create", terminatingError()), []string{"create"}, "terminating"},
		"creation not answered":  {plan.Create, answer("create", no), []string{"create"}, "failed"},
		"gone meanwhile":         {plan.Update, answer("update", notFound), []string{update}, "stale"},
		"changed, to delete":     {plan.Delete, answer("delete", conflict), []string{"delete"}, "stale"},
		"gone, to delete":        {plan.Delete, answer("delete", notFound), []string{"delete"}, ""},
		"there, without a label": {plan.Create, answer("create", exists), []string{"create", update}, ""},
		"there, of another": {plan.Create, func(f *slicesFixture) {
			answer("create", exists)(f)
			f.live.OwnerReferences[0].UID = "another"
		}, []string{"create"}, "refused"},
		"there, and gone": {plan.Create, func(f *slicesFixture) {
			f.answers = map[string]error{"create": exists, "get": notFound}
		}, []string{"create"}, "stale"},
		"stored without the label": {plan.Create, admit(func(s *discoveryv1.EndpointSlice) {
			delete(s.Labels, v1alpha1.HostnamesLabelKey)
		}), []string{"create"}, "contested"},
		"stored for another owner": {plan.Update, admit(func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences[0].UID = "another"
		}), []string{update}, "contested"},
		"stored with another hostname": {plan.Update, admit(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Hostname = new("x")
		}), []string{update}, "contested"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newSlicesFixture(t)
			if c.edit != nil {
				c.edit(f)
			}
			f.checkWrite(c.action, c.want, c.outcome)
		})
	}
}

// checkWrite checks the requests that a change takes, and its outcome.
func (f *slicesFixture) checkWrite(action plan.Action, want []string, wantOutcome string) {
	f.t.Helper()
	change := f.changes[action]
	again, report, err := f.deps.WriteCopy(f.t.Context(), f.ls, &change, f.names)
	refused := f.deps.refusedCopies(f.ls, []plan.CopyChange{change})
	outcome := ""
	switch {
	case report != (len(refused) > 0):
		outcome = fmt.Sprintf("report: %t, refused: %v", report, refused)
	case report && err == nil && isContested(refused[0]):
		outcome = "contested"
	case report && err == nil:
		outcome = "refused"
	case err != nil && ClassOf(err) == Stale:
		outcome = "stale"
	case err != nil:
		outcome = "failed"
	case again > 0:
		outcome = "terminating"
	}
	if diff := cmp.Diff(append(want, wantOutcome), append(f.took(), outcome)); diff != "" {
		f.t.Errorf("requests and outcome (-want +got), %v:\n%s", err, diff)
	}
	if err != nil && !strings.Contains(err.Error(), " EndpointSlice default/s1-named: ") {
		f.t.Errorf("the error names no EndpointSlice: %v", err)
	}
	isStored := wantOutcome == "" || wantOutcome == "contested"
	if is := isStored && action != plan.Delete; f.isObserved() != is {
		f.t.Errorf("the cache must observe it: %t, want %t", f.isObserved(), is)
	}
}

func answer(request string, err error) func(*slicesFixture) {
	return func(f *slicesFixture) { f.answers = map[string]error{request: err} }
}

func admit(change func(*discoveryv1.EndpointSlice)) func(*slicesFixture) {
	return func(f *slicesFixture) { f.admit = change }
}

// TestRefusedSlice: a refused write is retried when its backoff is over. It is reported when it is refused, and when it
// no longer is.
func TestRefusedSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlicesFixture(t)
		answer("create", forbidden)(f)
		change := f.changes[plan.Create]
		type written struct {
			Again             time.Duration
			Report            bool
			Requests, Refused int
		}
		expect := func(when string, want written) {
			t.Helper()
			again, report, err := f.deps.WriteCopy(t.Context(), f.ls, &change, f.names)
			refused := f.deps.refusedCopies(f.ls, []plan.CopyChange{change, {Name: "other"}})
			if diff := cmp.Diff(want, written{again, report, len(f.took()), len(refused)}); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", when, err, diff)
			}
		}
		expect("at first", written{10 * time.Second, true, 1, 1})
		time.Sleep(4 * time.Second)
		expect("a moment later", written{6 * time.Second, false, 0, 1})
		time.Sleep(6 * time.Second)
		expect("when it is due", written{20 * time.Second, true, 1, 1})
		f.nextGeneration()
		expect("for another spec", written{10 * time.Second, true, 1, 1})
		time.Sleep(10 * time.Second)
		f.answers = nil
		expect("accepted", written{0, true, 1, 0})
		expect("and again", written{0, false, 1, 0})
	})
}

// TestUndoneSlice: while something else undoes an update, one that sets other endpoints is made at once, because the
// name must follow the pods.
func TestUndoneSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlicesFixture(t)
		change := f.changes[plan.Update]
		change.Fields = []string{"metadata"}
		f.version = change.Current.GetResourceVersion()
		for i, c := range []struct {
			sum   uint64
			waits time.Duration
		}{{1, 0}, {1, minUndoneBackoff}, {2, 0}, {2, 2 * minUndoneBackoff}} {
			change.Sum = c.sum
			waits, _, err := f.deps.WriteCopy(t.Context(), f.ls, &change, f.names)
			if err != nil || waits != c.waits {
				t.Errorf("update %d waits for %s; want %s: %v", i, waits, c.waits, err)
			}
		}
	})
}

// TestContestedSlice: while admission changes copies, one that gets other endpoints is written at once, because the
// name must follow the pods.
func TestContestedSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlicesFixture(t)
		admit(func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil })(f)
		change := f.changes[plan.Update]
		change.Fields = []string{"metadata"}
		for i, c := range []struct {
			sum      uint64
			requests int
		}{{1, 1}, {1, 0}, {2, 1}, {2, 0}} {
			change.Sum = c.sum
			waits, _, err := f.deps.WriteCopy(t.Context(), f.ls, &change, f.names)
			if requests := f.took(); err != nil || waits != reconcile.MaxBackoff || len(requests) != c.requests {
				t.Errorf("update %d: %v, waits for %s: %v", i, requests, waits, err)
			}
		}
	})
}

// TestLostSlice: a copy that loses a label each time, so that the cache does not have it, is updated less and less
// often, too.
func TestLostSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newSlicesFixture(t)
		answer("create", exists)(f)
		delete(f.live.Labels, v1alpha1.HostnamesLabelKey)
		f.version = f.live.ResourceVersion
		change, updates := f.changes[plan.Create], 0
		for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
			if _, _, err := f.deps.WriteCopy(t.Context(), f.ls, &change, f.names); err != nil {
				t.Fatal(err)
			}
			updates += len(f.took()) / 2 // each behind a creation
		}
		refused := f.deps.refusedCopies(f.ls, []plan.CopyChange{change})
		if updates != 4 || len(refused) != 1 || !isUndone(refused[0]) {
			t.Errorf("%d updates, refused: %v", updates, refused)
		}
	})
}
