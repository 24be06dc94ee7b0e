package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// at is a time in the audit log.
func at(second int) metav1.MicroTime {
	return metav1.NewMicroTime(time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC))
}

// request is a request of a controller that was answered a second after it was received.
func request(verb, resource, name string, received int) framework.Request {
	return framework.Request{
		Verb: verb, UserAgent: "local-service-controller/v1", RequestURI: "/?watch=true&sendInitialEvents=true",
		ObjectRef:                &auditv1.ObjectReference{Resource: resource, Name: name},
		ResponseStatus:           &metav1.Status{Code: 200},
		RequestReceivedTimestamp: at(received), StageTimestamp: at(received + 1),
	}
}

func TestPicks(t *testing.T) {
	requests := framework.Requests{
		request("create", "services", "a", 1), request("delete", "services", "a", 2),
		request("watch", "pods", "", 3), request("update", "leases", "l", 4),
	}
	for what, c := range map[string]struct {
		picked pick
		want   int
	}{
		"creations":    {createdServices, 1},
		"other writes": {otherWrites, 1},
		"work":         {work, 3},
	} {
		if got := len(c.picked(requests)); got != c.want {
			t.Errorf("%s: got %d, want %d", what, got, c.want)
		}
	}
	for from, want := range []int{1, 1, 1, 0} {
		o := observed{from: at(from).Time, to: at(5).Time}
		if got := len(requests.Where(o.listed)); got != want {
			t.Errorf("lists after %d s: got %d, want %d", from, got, want)
		}
	}
	if got := span(requests); got != 4*time.Second {
		t.Errorf("span: got %v", got)
	}
}

func TestMostServed(t *testing.T) {
	var made framework.Requests
	for _, name := range []string{"a-n1", "b-n1", "c-n1", "a-n-2", "b-n-2", "a-n3"} {
		made = append(made, request("create", "services", name, 1))
	}
	node, services := mostServed(made, sets.New("n1"))
	if node != "n-2" || !services.Equal(sets.New("a-n-2", "b-n-2")) {
		t.Errorf("got %s with %v", node, services)
	}
}

func TestServiceTemplate(t *testing.T) {
	made := func(namespace, owner, node string, uid types.UID) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: owner + "-" + node,
				Labels: map[string]string{"owner": owner}, Annotations: map[string]string{"node": node},
				OwnerReferences: []metav1.OwnerReference{{Kind: "LocalService", Name: owner, UID: uid}},
			},
			Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": owner, "vm/rack": node}},
		}
	}
	read := made("other", "template", "node", "2")
	read.UID, read.ResourceVersion, read.Generation, read.Spec.ClusterIPs = "1", "1", 1, []string{"None"}
	template := &serviceTemplate{sent(read), "template", "node"}
	owner := &v1alpha1.LocalService{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: "3"}}
	for range 2 { // The first copy must leave the template as it is.
		if diff := cmp.Diff(made("ns", "app", "n1", "3"), template.copyFor(owner, "n1")); diff != "" {
			t.Error(diff)
		}
	}
}

func TestReport(t *testing.T) {
	opts, r := options{out: t.TempDir(), smoke: true}, &report{}
	r.add(2,
		check{what: "slower than bare clients", unit: "s", ours: 1.234, floor: 1, ratio: 1.234}.atMostTimes(1.15),
		samples{5, 1, 2, 9}.longest("fast enough").atMost(9),
		samples{}.longest("not measured"),
	)
	r.count(1, "Services", 5, 5)
	if err := r.finish(opts); err != nil {
		t.Errorf("times are no errors in a smoke run: %v", err)
	}
	opts.smoke = false
	const missed = "row 2: slower than bare clients: 1.23 × instead of ≤ 1.15 ×"
	if err := r.finish(opts); err == nil || err.Error() != missed {
		t.Errorf("a target that is missed must be an error: got %v", err)
	}
	r.count(1, "Services", 4, 5)
	opts.smoke = true
	if err := r.finish(opts); err == nil {
		t.Error("a count that is wrong must be an error in a smoke run, too")
	}
	table, err := os.ReadFile(filepath.Join(opts.out, "results.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(table), "| longest of 4, median 2.00 s, shortest 1.00 s") {
		t.Errorf("got the table\n%s", table)
	}
}

func TestParseRows(t *testing.T) {
	o := options{}
	if err := o.parseRows("3, 10"); err != nil || !slices.Equal(o.rows, []int{3, 10}) {
		t.Errorf("got %v, %v", o.rows, err)
	}
	if err := o.parseRows("99"); err == nil {
		t.Error("a row that there is not must be an error")
	}
}
