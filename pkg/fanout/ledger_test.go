package fanout

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var (
	demoKey = types.NamespacedName{Namespace: "default", Name: "demo"}
	svcB    = types.NamespacedName{Namespace: "default", Name: "demo-b"}
)

func TestLedgerScope(t *testing.T) {
	l, ls := NewLedger(), localService()
	take := func(want Scope) {
		t.Helper()
		if diff := cmp.Diff(want, l.Take(demoKey, ls)); diff != "" {
			t.Errorf("scope (-want +got):\n%s", diff)
		}
	}
	l.MarkNode(demoKey, "a")
	take(Scope{All: true}) // Nothing is known of the other nodes yet.
	l.Record(demoKey, ls, Findings{Scope: Scope{All: true}, Selected: []string{"a", "b"}})
	take(Scope{Nodes: []string{}})
	l.MarkNode(demoKey, "b")
	l.MarkNode(demoKey, "a")
	take(Scope{Nodes: []string{"a", "b"}})
	take(Scope{Nodes: []string{}})
	l.MarkNode(demoKey, "a")
	l.MarkAll(demoKey)
	take(Scope{All: true})
	take(Scope{Nodes: []string{}})
	ls.Generation++
	take(Scope{All: true}) // What is known is of an earlier spec.
	l.Record(demoKey, ls, Findings{Scope: Scope{All: true}, Selected: []string{"a", "b"}})
	ls.UID = "another"
	take(Scope{All: true})
	l.Forget(demoKey)
	take(Scope{All: true})
}

func TestLedgerOutcome(t *testing.T) {
	l, ls := NewLedger(), localService()
	outcome := func(want Outcome) {
		t.Helper()
		if diff := cmp.Diff(want, l.Outcome(demoKey)); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
	}
	l.Record(demoKey, ls, Findings{Scope: Scope{All: true}, Selected: []string{"a", "b", "c", "d"}, Ready: []string{"a", "d"}, Changes: []Change{
		{Action: Create, Name: "demo-a", Node: "a"},
		{Action: Conflict, Name: "demo-b", Node: "b"},
		{Action: Wait, Name: "demo-c", Node: "c"},
		{Action: Delete, Name: "demo-x"},
	}})
	outcome(Outcome{Nodes: 4, InPlace: 1, ReadyNodes: 2, Conflicts: []string{"demo-b"}, Waiting: 1})
	l.Settle(demoKey, "a")
	outcome(Outcome{Nodes: 4, InPlace: 2, ReadyNodes: 2, Conflicts: []string{"demo-b"}, Waiting: 1})
	l.Record(demoKey, ls, Findings{Scope: Scope{Nodes: []string{"b", "e"}}, Selected: []string{"b", "e"}, Ready: []string{"e"}})
	outcome(Outcome{Nodes: 5, InPlace: 4, ReadyNodes: 3, Waiting: 1})
	l.Record(demoKey, ls, Findings{Scope: Scope{Nodes: []string{"c", "d"}}})
	outcome(Outcome{Nodes: 3, InPlace: 3, ReadyNodes: 2})
}

func TestLedgerClaims(t *testing.T) {
	l, ls := NewLedger(), localService()
	claims := func(want ...Claim) {
		t.Helper()
		if diff := cmp.Diff(want, l.Claims(svcB)); diff != "" {
			t.Errorf("claims (-want +got):\n%s", diff)
		}
	}
	conflict := []Change{{Action: Conflict, Name: "demo-b", Node: "b"}}
	claims()
	l.Record(demoKey, ls, Findings{Scope: Scope{All: true}, Selected: []string{"a", "b"}, Changes: conflict})
	claims(Claim{demoKey, "b"})
	l.Record(demoKey, ls, Findings{Scope: Scope{Nodes: []string{"b"}}, Selected: []string{"b"}})
	claims()
	l.Record(demoKey, ls, Findings{Scope: Scope{Nodes: []string{"b"}}, Selected: []string{"b"}, Changes: conflict})
	claims(Claim{demoKey, "b"})
	l.Settle(demoKey, "b")
	claims()
	l.Record(demoKey, ls, Findings{Scope: Scope{All: true}, Selected: []string{"a", "b"}, Changes: conflict})
	l.Record(demoKey, ls, Findings{Scope: Scope{All: true}, Selected: []string{"a"}})
	claims()
	l.Record(demoKey, ls, Findings{Scope: Scope{All: true}, Selected: []string{"a", "b"}, Changes: conflict})
	l.Forget(demoKey)
	claims()
}

// TestLedgerStatus: while the cache is older than our last write, it is not asked what the status is.
func TestLedgerStatus(t *testing.T) {
	l, cached := NewLedger(), localService()
	cached.ResourceVersion, cached.Status.Nodes = "10", 1
	if got := l.Status(demoKey, cached).Nodes; got != 1 {
		t.Errorf("%d, want 1 from the cache", got)
	}
	l.RecordStatus(demoKey, &v1alpha1.LocalServiceStatus{Nodes: 2}, "11", time.Now())
	if got := l.Status(demoKey, cached).Nodes; got != 2 {
		t.Errorf("%d, want 2 as written", got)
	}
	cached.ResourceVersion, cached.Status.Nodes = "12", 3
	if got := l.Status(demoKey, cached).Nodes; got != 3 {
		t.Errorf("%d, want 3 from the newer cache", got)
	}
}
