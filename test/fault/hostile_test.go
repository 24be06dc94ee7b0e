package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

var localServiceResource = v1alpha1.SchemeGroupVersion.WithResource("localservices")

// TestHostileInput stores hundreds of LocalServices that no schema has checked. Each is served, or reported as invalid.
// Those of another namespace are served as before, even by a controller that has just started.
func TestHostileInput(t *testing.T) {
	random, count := random(t), 300
	c := framework.NewCluster(t, framework.ControlPlane())
	const anything = `[{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema",
		"value": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}]`
	good, bad := newWorld(t, c, 2), c.NewScene(t, "hostile")
	bad.MustKubectl("patch", "customresourcedefinition", framework.CRDName, "--type=json", "--patch="+anything)
	k := c.NewController(t)
	good.create("a")
	good.settle("before")
	stored := 0
	for i := range count {
		object := map[string]any{"spec": hostileSpec(random)}
		if random.IntN(5) == 0 {
			object["status"] = junk(random, 3)
		}
		ls := &unstructured.Unstructured{Object: object}
		ls.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))
		ls.SetName(fmt.Sprintf("h%d", i))
		_, err := c.Dynamic.Resource(localServiceResource).Namespace(bad.Namespace).Create(t.Context(), ls,
			metav1.CreateOptions{})
		if err != nil {
			t.Logf("refused: %v", err) // The API server's own limits, such as for the size of an object.
			continue
		}
		stored++
	}
	if stored < count*9/10 {
		t.Errorf("%d of %d were stored", stored, count)
	}
	for round := range 2 {
		good.addNode(fmt.Sprintf("late%d", len(good.nodes)))
		good.settle("beside the hostile ones")
		bad.Eventually("each is served, or its status says that it is invalid, or why its Services cannot be written",
			func(ctx context.Context) error { return allTold(ctx, bad) })
		// The second one finds what the status says already.
		if round == 0 && len(k.LogLines(bad.Namespace+"/", "cannot be read")) == 0 {
			t.Error("the log names none of those that cannot be decoded")
		}
		good.Must(k.CheckLog())
		good.note("restarted")
		k.Kill()
		k = c.NewController(t)
	}
}

// allTold returns an error that names LocalServices without a status.
func allTold(ctx context.Context, s *framework.Scene) error {
	list, err := s.Dynamic.Resource(localServiceResource).Namespace(s.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var silent []string
	for i := range list.Items {
		var status v1alpha1.LocalServiceStatus
		data, err := json.Marshal(list.Items[i].Object["status"])
		if err != nil {
			return err
		}
		if json.Unmarshal(data, &status) != nil || meta.FindStatusCondition(status.Conditions,
			v1alpha1.ConditionReady) == nil {
			silent = append(silent, fmt.Sprintf("%s %v", list.Items[i].GetName(), list.Items[i].Object))
		}
	}
	if len(silent) > 0 {
		return fmt.Errorf("%d of %d LocalServices have no status, such as %.600s", len(silent), len(list.Items),
			silent[0])
	}
	return nil
}

// hostileSpec returns a spec in which some fields are junk.
func hostileSpec(random *rand.Rand) any {
	if random.IntN(10) == 0 {
		return junk(random, 3)
	}
	spec := map[string]any{"selector": map[string]any{"app": "x"}, "clusterIP": "None",
		"nodeSelector": map[string]any{"none": "such"}, "ports": []any{map[string]any{"name": "http",
			"port": int64(80)}}}
	for _, field := range []string{"selector", "clusterIP", "ports", "nodeSelector", "type", "sessionAffinity",
		"sessionAffinityConfig", "ipFamilies", "ipFamilyPolicy", "loadBalancerClass", "loadBalancerSourceRanges",
		"serviceMetadata", "publishNotReadyAddresses", "internalTrafficPolicy", "unheardOf"} {
		if random.IntN(6) == 0 {
			spec[field] = junk(random, 3)
		}
	}
	if random.IntN(4) == 0 {
		spec["ports"] = []any{map[string]any{"port": junk(random, 0), "targetPort": junk(random, 0),
			"name": junk(random, 0)}}
	}
	if random.IntN(4) == 0 {
		spec["selector"] = map[string]any{"app": junk(random, 0), fmt.Sprint(junk(random, 0)): "x"}
	}
	return spec
}

// junk returns any value, nested up to a number of levels.
func junk(random *rand.Rand, depth int) any {
	values := []any{nil, true, int64(0), int64(-1), int64(70000), int64(1) << 32, int64(-1) << 63, 1.5, "", "a", "None",
		"\x01\u202e\ufeff\U0001f600", "8080", strings.Repeat("x", 300), "a b", "../..", "10.0.0.1/8"}
	choice := random.IntN(len(values) + 3)
	switch {
	case choice < len(values):
		return values[choice]
	case depth == 0:
		return strings.Repeat("long", 20000)
	case choice == len(values):
		return []any{junk(random, depth-1), junk(random, depth-1)}
	}
	return map[string]any{fmt.Sprint(junk(random, 0)): junk(random, depth-1), "port": junk(random, depth-1)}
}
