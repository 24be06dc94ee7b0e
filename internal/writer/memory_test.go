package writer

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestContested: fields are known for the spec that they were found with, and for a while.
func TestContested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ls := newContested(), testobject.LocalService()
		c.Add(ls, sets.New("type", "ports"))
		c.Add(ls, sets.New("selector", "ports"))
		for name, other := range map[string]func(*v1alpha1.LocalService){
			"another spec":         func(ls *v1alpha1.LocalService) { ls.Generation++ },
			"another LocalService": func(ls *v1alpha1.LocalService) { ls.UID = "another" },
		} {
			if got := c.Fields(testobject.LocalService(other)); got != nil {
				t.Errorf("of %s: %v", name, got)
			}
		}
		time.Sleep(ContestedFor - 1)
		if got := c.Fields(ls); !slices.Equal(got, []string{"ports", "selector", "type"}) {
			t.Errorf("before the time is up: %v", got)
		}
		time.Sleep(2 * time.Nanosecond)
		if got := c.Fields(ls); got != nil {
			t.Errorf("when the time is up: %v", got)
		}
	})
}

// TestLiveNodes: an answer is shared for a moment, an error is not, and a node without labels is one that is there.
func TestLiveNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scheme := metadatafake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		node := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: "bare"}}
		client := metadatafake.NewSimpleMetadataClient(scheme, node)
		fails := true
		client.PrependReactor("get", "nodes", func(core.Action) (bool, runtime.Object, error) {
			return fails, nil, errors.New("no answer")
		})
		nodes := newLiveNodes(client)
		for _, c := range []struct {
			name     string
			fails    bool
			after    time.Duration
			there    bool
			requests int
		}{
			{"bare", true, 0, false, 1}, {"bare", false, 0, true, 1}, {"bare", true, liveFor - 1, true, 0},
			{"bare", true, 2, false, 1}, {"gone", false, 0, false, 1}, {"gone", true, 0, false, 0},
			{"", true, 0, false, 0},
		} {
			client.ClearActions()
			fails = c.fails
			time.Sleep(c.after)
			set, err := nodes.labels(t.Context(), c.name)
			n := len(client.Actions())
			if (set != nil) != c.there || n != c.requests || (err != nil) != (c.fails && n > 0) {
				t.Errorf("%+v: %v, %v after %d requests", c, set, err, n)
			}
		}
	})
}

// TestReservations: however many reserve at the same time, those that see a total within a limit are within it
// together; and what is released, or cannot be counted, is free again.
func TestReservations(t *testing.T) {
	const each, limit = 4, 11
	kube := fake.NewClientset(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "default"}})
	r := NewReservations(kube, true)
	var mu sync.Mutex
	within := 0
	var releases []func()
	var running sync.WaitGroup
	for range 20 {
		running.Go(func() {
			total, release, err := r.Reserve(t.Context(), "default", each)
			mu.Lock()
			defer mu.Unlock()
			if releases = append(releases, release); err != nil || total <= limit {
				within++
			}
		})
	}
	running.Wait()
	if within > (limit-1)/each {
		t.Errorf("%d of %d each may go on, with a limit of %d", within, each, limit)
	}
	for _, release := range releases {
		release()
		release() // Once more is no more.
	}
	kube.PrependReactor("list", "services", func(a core.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == "fails", nil, errors.New("no answer")
	})
	if _, _, err := r.Reserve(t.Context(), "fails", each); err == nil {
		t.Error("no error although the Services cannot be counted")
	}
	for namespace, want := range map[string]int{"default": 1 + each, "elsewhere": each} {
		if total, _, err := r.Reserve(t.Context(), namespace, each); total != want || err != nil {
			t.Errorf("in the end %d in %s, %v; want %d", total, namespace, err, want)
		}
	}
	if len(r.reserved) != 2 {
		t.Errorf("reserved: %v", r.reserved)
	}
}
