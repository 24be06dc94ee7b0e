package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
)

// ownerMeta is the metadata of an owner, with the UID of controlledBy.
func ownerMeta(name string) metav1.ObjectMeta {
	m := meta(name)
	m.UID = types.UID("uid-of-" + name)
	return m
}

// controlledBy returns a pod on n3 with a node label that names no node, and an owner.
func controlledBy(apiVersion, kind, owner, name string) *corev1.Pod {
	p := pod(name, "n3", true)
	p.Labels["vm/rack"] = "rack1"
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner,
		UID: types.UID("uid-of-" + owner), Controller: new(true)}}
	return p
}

// byKeys selects by some labels.
func byKeys(keys ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, key := range keys {
		s.MatchLabels[key] = "x"
	}
	return s
}

// ownerReads counts the reads of owners.
func (f *fixture) ownerReads() (n int) {
	for _, action := range f.kube.Actions() {
		if action.GetVerb() == "get" {
			n++
		}
	}
	return n
}

// TestOwners: what the table says about a pod with a wrong label, by its owner.
func TestOwners(t *testing.T) {
	const selects, may, not = "selects it", "may select it", "instead of n3"
	rs := &appsv1.ReplicaSet{ObjectMeta: ownerMeta("o"),
		Spec: appsv1.ReplicaSetSpec{Selector: byKeys("app", "vm/rack")}}
	for name, c := range map[string]struct {
		apiVersion, kind string
		owner            runtime.Object
		err              error
		want             string
	}{
		"ReplicaSet": {"apps/v1", "ReplicaSet", rs, nil, selects},
		"ReplicaSet, not by it": {"apps/v1", "ReplicaSet", &appsv1.ReplicaSet{ObjectMeta: ownerMeta("o"),
			Spec: appsv1.ReplicaSetSpec{Selector: byKeys("app")}}, nil, not},
		"ReplicaSet, forbidden": {"apps/v1", "ReplicaSet", rs, forbidden, may},
		"Node, of a static pod": {"v1", "Node", nil, nil, not},
		"unknown kind":          {"apps.kruise.io/v1", "CloneSet", nil, nil, may},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, controlledBy(c.apiVersion, c.kind, "o", "x"))
			if c.owner != nil {
				if err := f.kube.Tracker().Add(c.owner); err != nil {
					t.Fatal(err)
				}
			}
			if c.err != nil {
				fail(&f.kube.Fake, "replicasets", c.err)
			}
			code, stdout, stderr := f.run(t, "nodes", "demo", "--no-headers", "-o", "wide")
			i := strings.Index(stdout, "x has vm/rack=rack1")
			if i < 0 {
				t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
			}
			message, _, _ := strings.Cut(stdout[i:], ":")
			if code != 0 || !strings.HasSuffix(message, " "+c.want) {
				t.Errorf("exit code %d, %q, %q; want %q", code, message, stderr, c.want)
			}
		})
	}
}

// ownersInput is three pods with a wrong label, and their two owners of a kind, which exist in two kinds.
func ownersInput(apiVersion, kind string) []runtime.Object {
	byLabel := appsv1.ReplicaSetSpec{Selector: byKeys("vm/rack")}
	return []runtime.Object{controlledBy(apiVersion, kind, "o", "x"), controlledBy(apiVersion, kind, "o", "y"),
		controlledBy(apiVersion, kind, "p", "z"),
		&appsv1.ReplicaSet{ObjectMeta: ownerMeta("o"), Spec: byLabel},
		&appsv1.ReplicaSet{ObjectMeta: ownerMeta("p"), Spec: byLabel},
		&corev1.ReplicationController{ObjectMeta: ownerMeta("o")},
		&corev1.ReplicationController{ObjectMeta: ownerMeta("p")}}
}

// TestOwnerReads: owners are read only for pods with a wrong label, and each once. If one may not be read, the others
// of its kind are not tried. What may change is read again after a while.
func TestOwnerReads(t *testing.T) {
	unlabelled := controlledBy("apps/v1", "ReplicaSet", "o", "x")
	delete(unlabelled.Labels, "vm/rack")
	for name, c := range map[string]struct {
		objects     []runtime.Object
		err         error
		first, then int // reads in a few lists, and in those after ownerRetry
		message     string
	}{
		"no label":    {[]runtime.Object{unlabelled}, nil, 0, 0, "no label vm/rack=n3: x;"},
		"ReplicaSets": {ownersInput("apps/v1", "ReplicaSet"), nil, 2, 0, "ReplicaSet o selects it (2 more pods):"},
		"ReplicationControllers": {ownersInput("v1", "ReplicationController"), nil, 2, 2,
			"x has vm/rack=rack1 instead of n3 (2 more pods):"},
		"forbidden": {ownersInput("apps/v1", "ReplicaSet"), forbidden, 1, 1,
			"ReplicaSet o may select it (2 more pods):"},
		"gone": {ownersInput("apps/v1", "ReplicaSet"),
			apierrors.NewNotFound(appsv1.Resource("replicasets"), "o"), 2, 2,
			"ReplicaSet o may select it (2 more pods):"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, c.objects...)
				if c.err != nil {
					fail(&f.kube.Fake, "replicasets", c.err)
				}
				ls := localService("demo", "")
				w, err := f.cluster("default").read(t.Context(), ls, "d", true)
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range []int{c.first, c.first, c.first + c.then, c.first + c.then} {
					if i == 2 {
						time.Sleep(ownerRetry)
					}
					message := diagnose.Nodes(w.input(t.Context(), ls)).Items[2].Message
					if !strings.Contains(message, c.message) {
						t.Errorf("%q; want %q", message, c.message)
					}
					if got := f.ownerReads(); got != want {
						t.Errorf("after list %d, %d owners were read; want %d", i, got, want)
					}
				}
			})
		})
	}
}

// TestOwnerInterrupted: a request that its user has given up says nothing about the owner.
func TestOwnerInterrupted(t *testing.T) {
	f := newFixture(t, ownersInput("apps/v1", "ReplicaSet")...)
	w := f.cluster("default").newWatcher("", "d")
	ref := &controlledBy("apps/v1", "ReplicaSet", "o", "x").OwnerReferences[0]
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if got := w.owners.selectorKeys(interrupted, "default", ref); got != nil {
		t.Errorf("interrupted: %v", got)
	}
	if got := w.owners.selectorKeys(t.Context(), "default", ref); !slices.Equal(got, []string{"vm/rack"}) {
		t.Errorf("then: %v", got)
	}
}

// TestWatchOwners: a watch, too, reads the owner of a pod once.
func TestWatchOwners(t *testing.T) {
	f := newFixture(t, ownersInput("apps/v1", "ReplicaSet")[3:]...)
	_, told := startWatch(t, f)
	next(t, told)
	pods := f.kube.CoreV1().Pods("default")
	for i, name := range []string{"x", "y"} {
		_, err := pods.Create(t.Context(), controlledBy("apps/v1", "ReplicaSet", "o", name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := &next(t, told).lists[key("demo")].Items[2]
		if n.Reason != diagnose.PodsSelectedByLabel || n.Cause() != "pods selected by the node label" {
			t.Errorf("after %s: %s, %s: %s", name, n.Reason, n.Cause(), n.Message)
		}
		if got := f.ownerReads(); got != 1 {
			t.Errorf("after pod %d, %d owners were read", i, got)
		}
	}
}
