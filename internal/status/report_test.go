package status

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// byName compares changes by what they are about.
var byName = cmp.Comparer(func(a, b plan.Change) bool { return a.Name == b.Name })

// TestNewReport: what a report has of a plan of which nothing was carried out.
func TestNewReport(t *testing.T) {
	conflict := conflicts("demo-b")[0]
	p := plan.Plan{Nodes: 5, InPlace: 2, Ready: 1, ContestedFields: []string{"type"},
		Capacity: plan.Capacity{InCluster: 7}, Retirement: plan.Retirement{Services: 3, Unanswered: -1},
		Changes: []plan.Change{{Action: plan.Create}, conflict, {Action: plan.Wait}, {Action: plan.Wait}}}
	want := Report{Nodes: 5, InPlace: 2, ReadyNodes: 1, Conflicts: []plan.Change{conflict},
		ContestedFields: []string{"type"}, Waiting: 2, Capacity: p.Capacity, Retirement: p.Retirement}
	if diff := cmp.Diff(want, NewReport(&p), byName); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestAddNames: what a report says about the names: to publish what is missing is to write, but not what was refused.
// What the report was made of stays as it is.
func TestAddNames(t *testing.T) {
	no := errors.New("no")
	changes := func(actions ...plan.Action) (all []plan.CopyChange) {
		for _, action := range actions {
			all = append(all, plan.CopyChange{Action: action})
		}
		return all
	}
	for name, c := range map[string]struct {
		report  Report
		copies  plan.Copies
		refused []error
		want    Report
	}{
		"in place":      {Report{}, plan.Copies{Sources: 1}, nil, Report{Hostnames: &Hostnames{}}},
		"not published": {Report{}, plan.Copies{}, nil, Report{Hostnames: &Hostnames{Unpublished: true}}},
		"the name is taken": {Report{Conflicts: conflicts("demo")}, plan.Copies{}, nil,
			Report{Conflicts: conflicts("demo"), Hostnames: &Hostnames{}}},
		"to publish": {Report{}, plan.Copies{Sources: 2, Changes: changes(plan.Create)}, nil,
			Report{Writing: true, Hostnames: &Hostnames{}}},
		"to update, or delete": {Report{}, plan.Copies{Sources: 2, Changes: changes(plan.Update, plan.Delete)}, nil,
			Report{Hostnames: &Hostnames{}}},
		"to wait for": {Report{}, plan.Copies{Sources: 2, Changes: changes(plan.Wait, plan.Wait)}, nil,
			Report{Hostnames: &Hostnames{Waiting: 2}}},
		"Services are being written": {Report{Writing: true}, plan.Copies{Sources: 1}, nil,
			Report{Writing: true, Hostnames: &Hostnames{}}},
		"refused": {Report{Writing: true}, plan.Copies{Sources: 2, Changes: changes(plan.Create)}, []error{no},
			Report{Refused: []error{no}, Hostnames: &Hostnames{}}},
		"Services are refused": {Report{Refused: []error{no}},
			plan.Copies{Sources: 2, Changes: changes(plan.Create)}, nil,
			Report{Refused: []error{no}, Hostnames: &Hostnames{}}},
		"contested": {Report{ContestedFields: []string{"type"}}, plan.Copies{Sources: 2, Contested: 1}, nil,
			Report{ContestedFields: []string{"type", EndpointsField}, Hostnames: &Hostnames{}}},
	} {
		t.Run(name, func(t *testing.T) {
			fields := append(make([]string, 0, 9), c.report.ContestedFields...)
			report := c.report
			report.ContestedFields = fields
			report.AddNames(&c.copies, c.refused)
			if diff := cmp.Diff(c.want, report, byName, cmpopts.EquateErrors(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if slices.Contains(fields[:cap(fields)], EndpointsField) {
				t.Error("the fields of the plan were changed")
			}
		})
	}
}
