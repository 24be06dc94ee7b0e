// Package fault tests what the simulation cannot show, with the built controller and a real API server: a process that
// is paused, a second API server, and objects that no schema has checked. Afterwards everything must be as without
// that: exactly the wanted Services, the status correct, and nothing deleted that was wanted all the time.
//
// A test prints its seed. `make test-fault SEED=n` repeats it; with FAULT=whole it takes longer.
package fault

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// shared is the cluster of the tests that leave it intact. Each has a namespace, nodes and a controller of its own, so
// they run one after the other.
var shared *framework.Cluster

func TestMain(m *testing.M) {
	framework.Main(m, func(ctx context.Context) (func() error, error) {
		var err error
		shared, err = framework.StartCluster(ctx, framework.ControlPlane())
		if err != nil {
			return nil, err
		}
		return shared.Stop, nil
	})
}

// rounds returns how often to repeat something.
func rounds(part, whole int) int {
	if os.Getenv("FAULT") == "whole" {
		return whole
	}
	return part
}

// random returns the source of a test's choices, and prints its seed. $SEED repeats them.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Int64N(1 << 32)
	if given, err := strconv.ParseInt(os.Getenv("SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0))
}
