// Package gitops tests what Helm, Flux and Argo CD make of the status of a LocalService.
package gitops

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	report "github.com/localservice-dev/local-service-controller/internal/status"
	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// answers has those of kstatus about a LocalService, by the reason of its condition Ready.
var answers = map[string]status.Status{
	v1alpha1.ReasonServicesInPlace:  status.CurrentStatus,
	v1alpha1.ReasonHostnamesInPlace: status.CurrentStatus,
	v1alpha1.ReasonNoneAnswering:    status.CurrentStatus,

	v1alpha1.ReasonWritingServices:  status.InProgressStatus,
	v1alpha1.ReasonWaiting:          status.InProgressStatus,
	v1alpha1.ReasonNoEndpointSlices: status.InProgressStatus,
	v1alpha1.ReasonWriteFailed:      status.InProgressStatus,

	v1alpha1.ReasonInvalidSpec:           status.FailedStatus,
	v1alpha1.ReasonNameTaken:             status.FailedStatus,
	v1alpha1.ReasonContested:             status.FailedStatus,
	v1alpha1.ReasonHostnamesNotPermitted: status.FailedStatus,
	v1alpha1.ReasonNoNodesSelected:       status.InProgressStatus,
}

// healths are the words of Argo CD for those of kstatus.
var healths = map[status.Status]string{
	status.CurrentStatus:    "Healthy",
	status.InProgressStatus: "Progressing",
	status.FailedStatus:     "Degraded",
}

// TestEveryReport tests the answers of kstatus, and of the check for Argo CD, to everything that a sync can report,
// whatever the previous report. It also tests that equal reports give equal statuses: otherwise they would be written
// repeatedly.
func TestEveryReport(t *testing.T) {
	check := newHealthCheck(t)
	before := map[string]v1alpha1.LocalServiceStatus{}
	reports(func(what string, statusOf func(*v1alpha1.LocalService) v1alpha1.LocalServiceStatus) {
		told := statusOf(generation2(v1alpha1.LocalServiceStatus{}))
		ready := meta.FindStatusCondition(told.Conditions, v1alpha1.ConditionReady)
		want, known := answers[ready.Reason]
		if !known {
			t.Fatalf("%s: what is kstatus to say to the reason %s?", what, ready.Reason)
		}
		if _, seen := before[ready.Reason]; !seen {
			for reason, old := range before { // Each of the states follows each other one.
				wantAnswer(t, check, reason+", then "+ready.Reason, 2, statusOf(generation2(old)), want)
			}
			before[ready.Reason] = told
			wantAnswer(t, check, ready.Reason+" of an earlier generation", 3, told, status.InProgressStatus)
		}
		wantAnswer(t, check, ready.Reason, 2, told, want)
	})
	if len(before) != len(answers) {
		t.Errorf("%d reasons were reported; there are %d", len(before), len(answers))
	}
}

// TestNewLocalService tests the answer to a LocalService as the API server stores it, before a controller has observed
// it.
func TestNewLocalService(t *testing.T) {
	server := simulation.NewAPIServer(1)
	if err := errors.Join(
		server.Create("user", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}),
		server.Create("user", framework.NewLocalService("default", "demo")),
	); err != nil {
		t.Fatal(err)
	}
	ls := simulation.Get[*v1alpha1.LocalService](server, "default", "demo")
	wantAnswer(t, newHealthCheck(t), ls.Status.Conditions[0].Reason, 1, ls.Status, status.InProgressStatus)
}

// generation2 returns a LocalService of the second generation, with a status from earlier.
func generation2(old v1alpha1.LocalServiceStatus) *v1alpha1.LocalService {
	return &v1alpha1.LocalService{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: old}
}

// reports calls yield with the statuses of all combinations of what a sync can find and do.
func reports(yield func(what string, statusOf func(*v1alpha1.LocalService) v1alpha1.LocalServiceStatus)) {
	slice := &report.WriteError{Action: plan.Create, Kind: report.EndpointSliceKind, Namespace: "default", Name: "x",
		Err: apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), "x",
			errors.New(`User "u" cannot create resource "endpointslices"`))}
	refused := [][]error{nil, {errors.New("exceeded quota")}, {slice}}
	waiting := []plan.Change{{Action: plan.Wait, Name: "demo-b"}}
	taken := []plan.Change{{Action: plan.Conflict, Name: "demo-a",
		Current: &corev1.Service{}}}
	copies := []*plan.Copies{nil, {Sources: 1}, {}, {Sources: 1, Changes: []plan.CopyChange{{Action: plan.Wait}}}}
	contested := []error{&report.ContestedError{Fields: []string{"type"}}}
	yield("invalid", func(ls *v1alpha1.LocalService) v1alpha1.LocalServiceStatus {
		return report.OfInvalid(ls, errors.New("bad"))
	})
	for bits := range 1 << 6 {
		has := func(bit int) int { return bits >> bit & 1 }
		for _, r := range refused {
			for _, c := range copies {
				p := plan.Plan{Nodes: 3 * has(0), Ready: has(5), IsHostnames: c != nil,
					Changes: map[plan.Action][]plan.Change{plan.Wait: waiting[:has(1)], plan.Conflict: taken[:has(3)]}}
				outcome := report.Outcome{More: has(2) == 1, Refused: slices.Concat(r, contested[:has(4)])}
				if c != nil {
					p.Copies = *c
				}
				yield(fmt.Sprintf("%+v %+v", p, outcome), func(ls *v1alpha1.LocalService) v1alpha1.LocalServiceStatus {
					return report.Of(ls, &p, &outcome)
				})
			}
		}
	}
}

func wantAnswer(t *testing.T, check *healthCheck, what string, generation int64, told v1alpha1.LocalServiceStatus,
	want status.Status) {
	t.Helper()
	ls := &v1alpha1.LocalService{ObjectMeta: metav1.ObjectMeta{Generation: generation}, Status: told}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ls)
	if err != nil {
		t.Fatal(err)
	}
	got, err := status.Compute(&unstructured.Unstructured{Object: content})
	if err != nil || got.Status != want {
		t.Errorf("%s: kstatus says %+v, %v; want %s", what, got, err, want)
	}
	if health, message := check.run(t, content); health != healths[want] || message == "" {
		t.Errorf("%s: the check for Argo CD says %s (%s); want %s", what, health, message, healths[want])
	}
}

// healthCheck is the check for Argo CD, which runs it in the same interpreter.
type healthCheck struct {
	state *lua.LState
	check *lua.LFunction
}

func newHealthCheck(t *testing.T) *healthCheck {
	t.Helper()
	document, err := os.ReadFile(framework.ModuleFile("docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(document), "\n## Helm, Flux and Argo CD\n")
	_, rest, _ = strings.Cut(rest, "```yaml\n")
	block, _, _ := strings.Cut(rest, "```\n")
	var configMap struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(block), &configMap); err != nil {
		t.Fatal(err)
	}
	key := "resource.customizations.health." + v1alpha1.GroupName + "_" + v1alpha1.Kind
	state := lua.NewState()
	t.Cleanup(state.Close)
	check, err := state.LoadString(configMap.Data[key])
	if err != nil {
		t.Fatal(err)
	}
	return &healthCheck{state, check}
}

func (c *healthCheck) run(t *testing.T, object map[string]any) (health, message string) {
	t.Helper()
	c.state.SetGlobal("obj", c.value(object))
	c.state.Push(c.check)
	if err := c.state.PCall(0, 1, nil); err != nil {
		t.Fatal(err)
	}
	defer c.state.Pop(1)
	answer := c.state.CheckTable(-1)
	return answer.RawGetString("status").String(), answer.RawGetString("message").String()
}

// value returns what Lua has for a value of JSON.
func (c *healthCheck) value(v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		table := c.state.NewTable()
		for key, of := range v {
			table.RawSetString(key, c.value(of))
		}
		return table
	case []any:
		table := c.state.NewTable()
		for _, of := range v {
			table.Append(c.value(of))
		}
		return table
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	}
	return lua.LNil
}
