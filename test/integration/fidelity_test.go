package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// onPurpose lists where the simulated API server differs from the real one, and why that does not matter: the requests,
// and what differs in the outcome.
var onPurpose = []struct {
	request, path *regexp.Regexp
	because       string
}{
	{regexp.MustCompile(`^services .*: patch .*clusterIP: None`), refusal,
		"both refuse it; but the real one may panic, when a Service that prefers two families has one address"},
	{regexp.MustCompile(`: update .* wrong UID$`), refusal,
		"both refuse it; the real one with 409, the simulated one with 422. The controllers update with the version " +
			"of what they have read, for which both have 409"},
}

// refusal has what distinguishes one refusal from another.
var refusal = regexp.MustCompile(`^\.(code|reason|error|isTerminating)$`)

// TestSimulationIsTrue sends the same random requests to a real API server and to the simulated one, whose histories
// test the controllers. The results of histories hold only if both servers answer the same, and store the same.
func TestSimulationIsTrue(t *testing.T) {
	t.Parallel()
	seed := uint64(1) // The same each time, unless it is given.
	if given, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("the seed is %d", seed)
	// Only those controllers of Kubernetes run that are needed for pods and for quotas. The simulation has them apart
	// from its API server.
	cluster := framework.NewCluster(t, framework.ClusterOptions{ControlPlaneOnly: true,
		Args: []string{"--controllers=serviceaccount-controller,resourcequota-controller"}})
	for name, play := range map[string]func(p *pair){
		"services-1": func(p *pair) { p.askAll(180, services.random) },
		"services-2": func(p *pair) { p.askAll(180, services.random) },
		"services-3": func(p *pair) { p.askAll(180, services.random) },
		"slices":     func(p *pair) { p.askAll(150, endpointSlices.random) },
		"locals-1":   func(p *pair) { p.askAll(150, randomLocal) },
		"locals-2":   func(p *pair) { p.askAll(150, randomLocal) },
		"leases":     func(p *pair) { p.askAll(80, leases.random) },
		"pods":       func(p *pair) { p.pods() },
		"workloads":  func(p *pair) { p.askAll(40, replicaSets.random) },
		"quota":      func(p *pair) { p.quota() },
		"watches":    func(p *pair) { p.watches() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(newPair(t, cluster, name, seed))
		})
	}
}

// pair is the two API servers, of which the first is the real one, and a namespace in both.
type pair struct {
	*testing.T
	*rand.Rand
	scene     *framework.Scene
	sides     [2]*side
	namespace string
	asked     []string
}

// ending is the suffix of the name of a namespace that is being deleted, and absent that of one that does not exist.
const ending, absent = "-ending", "-absent"

func newPair(t *testing.T, cluster *framework.Cluster, name string, seed uint64) *pair {
	t.Helper()
	s := cluster.NewScene(t, name)
	p := &pair{T: t, Rand: rand.New(rand.NewPCG(seed, uint64(len(name))<<8+uint64(name[len(name)-1]))), scene: s,
		namespace: s.Namespace}
	server := simulation.NewAPIServer(100)
	for i, config := range []*rest.Config{rest.CopyConfig(cluster.Config), server.NewEndpoint("replica1", 1).Config()} {
		var err error
		if p.sides[i], err = newSide(config); err != nil {
			t.Fatal(err)
		}
	}
	over := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace + ending}}
	namespaces := cluster.Kube.CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), over, metav1.CreateOptions{})
	if err := errors.Join(err,
		namespaces.Delete(t.Context(), over.Name, metav1.DeleteOptions{}),
		server.Create("user", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}),
		server.Create("user", over),
		server.Delete("user", over, metav1.DeleteOptions{}),
	); err != nil {
		t.Fatal(err)
	}
	return p
}

// askAll makes a number of random requests.
func (p *pair) askAll(count int, request func(p *pair) request) {
	p.Helper()
	for range count {
		p.ask(request(p))
	}
}

func pick[T any](p *pair, of ...T) T { return of[p.IntN(len(of))] }

// request is a request to both sides, which make it at the same time. Its do receives the object that a side has.
type request struct {
	kind, namespace, name, what string

	do  func(ctx context.Context, s *side, was known) (answer any, err error)
	get func(ctx context.Context, s *side) (metav1.Object, error)
}

func (r *request) String() string {
	return fmt.Sprintf("%s %s/%s: %s", r.kind, r.namespace, r.name, r.what)
}

// ask makes a request to both sides, and fails the test if their answers, or what they store, differ.
func (p *pair) ask(r request) {
	p.Helper()
	p.asked = append(p.asked, r.String())
	var outcomes [2]map[string]any
	var running sync.WaitGroup
	for i, s := range p.sides {
		running.Go(func() { outcomes[i] = s.ask(p.Context(), &r) })
	}
	running.Wait()
	if problems := differences(&r, "", outcomes[0], outcomes[1]); len(problems) > 0 {
		real, _ := json.Marshal(outcomes[0])
		simulated, _ := json.Marshal(outcomes[1])
		p.Fatalf("%s\nreal and simulated differ:\n%s\nreal:      %s\nsimulated: %s\nrequests before:\n%s", &r,
			strings.Join(problems, "\n"), real, simulated, strings.Join(p.asked[max(0, len(p.asked)-15):], "\n"))
	}
}

// differences returns how two JSON values differ, except for differences on purpose.
func differences(r *request, path string, real, simulated any) []string {
	for _, row := range onPurpose {
		if row.request.MatchString(r.String()) && row.path.MatchString(path) {
			return nil
		}
	}
	a, isMap := real.(map[string]any)
	b, areMaps := simulated.(map[string]any)
	if !isMap || !areMaps {
		if reflect.DeepEqual(real, simulated) {
			return nil
		}
		return []string{fmt.Sprintf("  %s: %v; simulated %v", path, real, simulated)}
	}
	var out []string
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if path == "" && key == "message" {
			continue // Only for people.
		}
		out = append(out, differences(r, path+"."+key, a[key], b[key])...)
	}
	return out
}
