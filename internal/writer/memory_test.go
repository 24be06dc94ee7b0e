package writer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
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
