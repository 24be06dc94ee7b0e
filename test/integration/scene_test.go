package integration

import (
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// nodeLabel is the label that this program is about.
const nodeLabel = v1alpha1.DefaultNodeLabelKey

// change is a change of a LocalService.
type change = framework.Change

// scene is a scene of the framework, with what only these tests do in it.
type scene struct{ *framework.Scene }

func newScene(t testing.TB, cluster *framework.Cluster, word string) *scene {
	t.Helper()
	return &scene{cluster.NewScene(t, word)}
}

// in is the scene for a subtest that has none of its own.
func (s *scene) in(t testing.TB) *scene { return &scene{s.In(t)} }
