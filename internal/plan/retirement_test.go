package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// answeringFor sets the status of a LocalService: at retirementNow, the new names have been answering for some time.
func answeringFor(age time.Duration, edit ...func(*metav1.Condition)) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		c := metav1.Condition{Type: v1alpha1.ConditionRetiring, Status: metav1.ConditionTrue,
			ObservedGeneration: ls.Generation, LastTransitionTime: metav1.NewTime(retirementNow.Add(-age))}
		for _, e := range edit {
			e(&c)
		}
		ls.Status.Conditions = append(ls.Status.Conditions, c)
	}
}

var retirementNow = time.Unix(2e9, 0)

// changingMode is the input for a LocalService whose mode has changed, with nodes a and b. The Services of both modes
// exist, those of the nodes in ready have an endpoint, and the pods on the nodes in named have a published name.
func changingMode(t *testing.T, ls *v1alpha1.LocalService, ready, named []string) Input {
	t.Helper()
	nodes := []string{"a", "b"}
	other := ls.DeepCopy()
	if other.Spec.Mode = v1alpha1.ModeHostnames; ls.Spec.Mode == v1alpha1.ModeHostnames {
		other.Spec.Mode = v1alpha1.ModeServices
	}
	owned := map[string]Service{}
	for _, mode := range []*v1alpha1.LocalService{ls, other} {
		for _, s := range existing(t, mode, nodes) {
			owned[s.Name] = kept(s)
		}
	}
	names := NamesOf(ls, nodeLabelKey, nil, func(name string) Service { return owned[name] })
	source := sourceSlice(names.Source, "s1", named...)
	names.Slices = byName(source, copies(names)(source))
	in := Input{Templates: templates(t, ls), Nodes: nodes, Owned: owned, Lookup: func(string) Service { return nil },
		Ready: map[string]bool{}, Names: names, Now: retirementNow}
	for _, node := range ready {
		in.Ready[ServiceName("demo", ForNode, node)] = true
	}
	return in
}

// outdate makes the copy of an EndpointSlice differ from it.
func outdate(in *Input) {
	copied := in.Names.Slices["s1-named"].(apiSlice).DeepCopy()
	renamedTo("x")(copied)
	in.Names.Slices[copied.Name] = fromAPI(copied)
}

// TestRetireServices: when the Services of nodes are deleted after a change to mode Hostnames.
func TestRetireServices(t *testing.T) {
	both, one := []string{"a", "b"}, []string{"a"}
	const due = RetireAfter + time.Second // as times in the API have a precision of a second
	all := []string{"Retire demo-a", "Retire demo-b"}
	for name, c := range map[string]struct {
		status       func(*v1alpha1.LocalService)
		ready, named []string
		edit         func(*Input)
		want         []string
		unanswered   int
		again        time.Duration
	}{
		"all answer, not reported yet": {nil, both, both, nil, nil, 0, RetireAfter},
		"just reported":                {answeringFor(0), both, both, nil, nil, 0, due},
		"a while ago":                  {answeringFor(20 * time.Second), both, both, nil, nil, 0, due - 20*time.Second},
		"almost due":                   {answeringFor(due - 1), both, both, nil, nil, 0, 1},
		"due":                          {answeringFor(due), both, both, nil, all, 0, 0},
		"reported for another spec": {answeringFor(due, func(c *metav1.Condition) {
			c.ObservedGeneration++
		}), both, both, nil, nil, 0, RetireAfter},
		"reported not to answer": {answeringFor(due, func(c *metav1.Condition) {
			c.Status = metav1.ConditionFalse
		}), both, both, nil, nil, 0, RetireAfter},
		"one does not answer":               {answeringFor(due), both, one, nil, nil, 1, 0},
		"one did not answer before, either": {answeringFor(due), one, one, nil, all, 0, 0},
		"an EndpointSlice is left of a Service that is gone": {answeringFor(due), both, both, func(in *Input) {
			in.Nodes, in.Ready["demo-c"] = append(in.Nodes, "c"), true
		}, all, 0, 0},
		"nothing is published, nor answered": {answeringFor(due), nil, nil, nil, all, 0, 0},
		"a name is not published": {answeringFor(due), both, both, func(in *Input) {
			s := sourceSlice(in.Names.Source, "s2", "c")
			in.Names.Slices[s.Name] = s
		}, nil, -1, 0},
		"a copy is outdated": {answeringFor(due), both, both, outdate, nil, 2, 0},
		"one node does not have the label that groupBy names": {answeringFor(due), both, both, func(in *Input) {
			in.Names.groupBy = "zone"
			in.Names.label = func(node, _ string) (string, bool) { return map[string]string{"a": "east"}[node], true }
			source := sourceSlice(in.Names.Source, "s1", both...)
			in.Names.Slices = byName(source, copies(in.Names)(source))
		}, all, 0, 0},
		"no node has the label that groupBy names": {answeringFor(due), both, both, func(in *Input) {
			in.Names.groupBy, in.Names.label = "zone", func(string, string) (string, bool) { return "", true }
		}, nil, -1, 0},
		"a Service is to be updated": {answeringFor(due), both, both, func(in *Input) {
			s := Whole(in.Owned["demo"], nodeLabelKey).DeepCopy()
			s.Spec.Selector = map[string]string{"x": "y"}
			in.Owned["demo"] = kept(s)
		}, append([]string{"Update demo"}, all...), 0, 0},
		"a Service is to be replaced": {answeringFor(due), both, both, func(in *Input) {
			s := Whole(in.Owned["demo"], nodeLabelKey).DeepCopy()
			s.Spec.ClusterIP = "10.0.0.1"
			in.Owned["demo"] = kept(s)
		}, []string{"Replace demo"}, -1, 0},
		"the name is taken": {answeringFor(due), both, both, func(in *Input) {
			delete(in.Owned, "demo")
			in.Lookup = func(name string) Service { return kept(foreign(name)) }
		}, []string{"Conflict demo"}, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			ls := localService(hostnamesMode)
			if c.status != nil {
				c.status(ls)
			}
			in := changingMode(t, ls, c.ready, c.named)
			if c.edit != nil {
				c.edit(&in)
			}
			checkRetirement(t, in, c.want, Retirement{Services: 2, Unanswered: c.unanswered, DueAfter: c.again})
		})
	}
}

// TestRetireNames: when the names are deleted after a change to mode Services. The Source is deleted once nothing
// publishes its pods any more.
func TestRetireNames(t *testing.T) {
	both, one := []string{"a", "b"}, []string{"a"}
	source := ServiceName("demo", Source, "")
	for name, c := range map[string]struct {
		ready, named []string
		edit         func(*Input)
		want         []string
		retirement   Retirement
	}{
		"due":                 {both, both, nil, []string{"Retire demo"}, Retirement{Services: 2}},
		"one does not answer": {one, both, nil, nil, Retirement{Services: 2, Unanswered: 1}},
		"one does not answer, and the copy is outdated": {one, both, outdate, nil,
			Retirement{Services: 2, Unanswered: 1}},
		"one is not named": {one, one, nil, []string{"Retire demo"}, Retirement{Services: 2}},
		"a Service is missing": {both, both, func(in *Input) { delete(in.Owned, "demo-b") },
			[]string{"Create demo-b"}, Retirement{Services: 2, Unanswered: -1}},
		"the names are being deleted": {both, both, func(in *Input) {
			s := Whole(in.Owned["demo"], nodeLabelKey).DeepCopy()
			s.DeletionTimestamp = new(metav1.NewTime(retirementNow))
			in.Owned["demo"] = kept(s)
		}, nil, Retirement{Services: 1}},
		"the names are gone": {both, both, func(in *Input) {
			delete(in.Owned, "demo")
			in.Names.Published = nil
		}, []string{"Retire " + source}, Retirement{Services: 1}},
		"nothing to retire": {both, both, func(in *Input) {
			delete(in.Owned, "demo")
			delete(in.Owned, source)
		}, nil, Retirement{}},
	} {
		t.Run(name, func(t *testing.T) {
			in := changingMode(t, localService(answeringFor(time.Hour)), c.ready, c.named)
			if c.edit != nil {
				c.edit(&in)
			}
			checkRetirement(t, in, c.want, c.retirement)
		})
	}
}

// checkRetirement checks what a plan does, and that it does not change its input.
func checkRetirement(t *testing.T, in Input, want []string, retirement Retirement) {
	t.Helper()
	services, slicesBefore := map[string]*corev1.Service{}, map[string]any{}
	for name, service := range in.Owned {
		services[name] = Whole(service, nodeLabelKey).DeepCopy()
	}
	for name, slice := range in.Names.Slices {
		slicesBefore[name] = slice.(apiSlice).DeepCopy()
	}
	nodes, status := slices.Clone(in.Nodes), in.Templates[0].owner.Status.DeepCopy()
	plan := Compute(in)
	if diff := cmp.Diff(want, actions(plan)) + cmp.Diff(retirement, plan.Retirement); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for name, service := range in.Owned {
		if diff := cmp.Diff(services[name], Whole(service, nodeLabelKey)); diff != "" {
			t.Errorf("Service %s was changed:\n%s", name, diff)
		}
	}
	for name, slice := range in.Names.Slices {
		if diff := cmp.Diff(slicesBefore[name], any(slice.(apiSlice).EndpointSlice)); diff != "" {
			t.Errorf("EndpointSlice %s was changed:\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(nodes, in.Nodes) + cmp.Diff(*status, in.Templates[0].owner.Status); diff != "" ||
		len(services) != len(in.Owned) || len(slicesBefore) != len(in.Names.Slices) {
		t.Errorf("the input was changed:\n%s", diff)
	}
}
