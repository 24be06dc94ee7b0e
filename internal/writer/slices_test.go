package writer

import (
	"errors"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestHasWrites: what must wait because something is refused is nothing to write.
func TestHasWrites(t *testing.T) {
	create, remove := plan.CopyChange{Action: plan.Create, Name: "a"}, plan.CopyChange{Action: plan.Delete, Name: "b"}
	wait := plan.CopyChange{Action: plan.Wait, Name: "c"}
	for name, c := range map[string]struct {
		changes []plan.CopyChange
		refused *plan.CopyChange
		want    bool
	}{
		"nothing":                         {nil, nil, false},
		"to wait for":                     {[]plan.CopyChange{wait}, nil, false},
		"all":                             {[]plan.CopyChange{create, remove, wait}, nil, true},
		"a deletion":                      {[]plan.CopyChange{remove}, nil, true},
		"a deletion that is refused":      {[]plan.CopyChange{remove}, &remove, false},
		"a creation beside that":          {[]plan.CopyChange{create, remove}, &remove, true},
		"a deletion, but creation is not": {[]plan.CopyChange{create, remove}, &create, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSlices(kubefake.NewClientset(), &Services{shuffle: rand.Shuffle}, nil)
			ls := &v1alpha1.LocalService{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
			if c.refused != nil {
				s.refused.Add(attemptOf(ls, c.refused), errors.New("no"), RefusedFor)
			}
			if got := s.HasWrites(ls, c.changes); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
