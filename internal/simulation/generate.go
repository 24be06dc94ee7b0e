package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// How often something happens in a history after it has begun, be it a burst of several things: so it has 30 steps or
// more.
const (
	fewest = 20
	most   = 30
)

// Generator returns random histories. What they shrink to is short, and has as little in it as possible.
func Generator() *rapid.Generator[*History] {
	return rapid.Custom(func(t *rapid.T) *History {
		h := &History{
			Seed:      rapid.Uint64Range(0, 1<<20).Draw(t, "seed"),
			Replicas:  1,
			Nodes:     rapid.IntRange(0, 4).Draw(t, "nodes"),
			Addresses: rapid.SampledFrom([]int{100, 100, 100, 3}).Draw(t, "addresses"),
			Streamed:  rapid.IntRange(0, 3).Draw(t, "streamed") < 3,
		}
		if rapid.IntRange(0, 15).Draw(t, "replicas") == 15 {
			h.Replicas = 2
		}
		// Half of the histories have nothing going wrong between the replicas and the API server.
		isCalm := rapid.Bool().Draw(t, "calm")
		h.Steps = beginning(t)
		for _, steps := range rapid.SliceOfN(step(isCalm), fewest, most).Draw(t, "steps") {
			h.Steps = append(h.Steps, steps...)
		}
		return h
	})
}

// beginning is what most histories begin with, so that there is something to go wrong.
func beginning(t *rapid.T) []Step {
	var out []Step
	for _, kind := range []kind{apply, runPod, apply, runPod} {
		if rapid.IntRange(0, 9).Draw(t, "begin") > 0 {
			out = append(out, kind(t))
		}
	}
	return out
}

var delays = []time.Duration{0, 0, 10 * time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, 20 * time.Second, 45 * time.Second,
	150 * time.Second}

// step is what happens next: one thing or, often, a burst of things while some watch tells nothing.
func step(isCalm bool) *rapid.Generator[[]Step] {
	kinds := often
	if !isCalm {
		kinds = slices.Concat(often, faulty)
	}
	return rapid.Custom(func(t *rapid.T) []Step {
		if rapid.IntRange(0, 1<<16).Draw(t, "nothing") == 0 {
			return nil // Steps that a failure does not need shrink to this.
		}
		out := []Step{rapid.SampledFrom(kinds).Draw(t, "do")(t)}
		out[0].After = rapid.SampledFrom(delays).Draw(t, "after")
		for range rapid.SampledFrom([]int{0, 0, 0, 2, 3}).Draw(t, "burst") {
			s := rapid.SampledFrom(often).Draw(t, "do")(t)
			s.After = rapid.SampledFrom(delays[:6]).Draw(t, "after")
			out = append(out, s)
		}
		if !isCalm && len(out) > 1 {
			out = append([]Step{stalls(t)}, out...)
			out[0].After, out[1].After = out[1].After, 0
		}
		return out
	})
}

func of(t *rapid.T, what string, from ...string) string { return rapid.SampledFrom(from).Draw(t, what) }

func local(t *rapid.T) string {
	return of(t, "namespace", "a", "a", "a", "b") + "/" + of(t, "name", "x", "x", "x", "y", "x-n0")
}

func service(t *rapid.T) string {
	ls := local(t)
	switch rapid.IntRange(0, 7).Draw(t, "which") {
	case 6:
		return ls
	case 7:
		return ls + "-hostnames"
	}
	return ls + "-" + of(t, "node", "n0", "n1", "n2", "n0-n1", "n4")
}

func node(t *rapid.T) string { return of(t, "node", append(nodes[:3:3], nodes...)...) }

func pod(t *rapid.T) string {
	return of(t, "namespace", "a", "a", "a", "b") + "/p" + of(t, "pod", "0", "1", "2", "3")
}

func spec(t *rapid.T) string {
	return of(t, "spec", slices.Sorted(maps.Keys(specs))...)
}

type kind = func(t *rapid.T) Step

func do(do string, on func(t *rapid.T) string, how ...string) kind {
	return func(t *rapid.T) Step {
		s := Step{Do: do, On: on(t)}
		if len(how) > 0 {
			s.How = of(t, "how", how...)
		}
		return s
	}
}

func edit(t *rapid.T) Step {
	how := spec(t)
	if rapid.Bool().Draw(t, "two") {
		how += "," + spec(t)
	}
	return Step{Do: "edit", On: local(t), How: how}
}

func apply(t *rapid.T) Step { return Step{Do: "apply", On: local(t), How: spec(t)} }

// spoil has somebody change a Service that is ours, most likely.
func spoil(t *rapid.T) Step {
	return do("edit-service", service, slices.Sorted(maps.Keys(serviceEdits))...)(t)
}

func runPod(t *rapid.T) Step {
	return Step{Do: "add-pod", On: pod(t), How: node(t) + of(t, "how", "", "", "", ",stale", ",other", ",starting")}
}

// often is what people and clusters do: what they do more often is there more often.
var often = []kind{
	apply, apply, edit, edit, edit,
	do("add-node", node), do("add-node", node), do("remove-node", node), do("remove-node", node), do("return-node",
		node),
	do("label-node", node, "disk=ssd", "disk=hdd", "zone=east", "zone=north", "zone="),
	do("take-back", local), do("edit", local, "hostnames", "services", "hdd", "ssd", "annotation"),
	do("delete", local, "", "", "Orphan", "Foreground"), func(t *rapid.T) Step {
		return Step{Do: "recreate", On: local(t), How: spec(t)}
	},
	do("forge", service, "plain", "lookalike", "orphan", "claims", "claims-other"),
	do("drop-service", service), do("drop-service", service),
	spoil, spoil, spoil, spoil,
	do("edit-slice", local, "labels", "owner", "endpoints"), do("drop-slice", local),
	runPod, runPod, do("ready-pod", pod, "no", "yes"), do("remove-pod", pod), do("complete-pod", pod),
	do("restart", func(*rapid.T) string { return "" }),
	do("quota", func(t *rapid.T) string { return of(t, "namespace", "a", "b") }, "", "", "2", "5"),
}

var durations = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second, 2 * time.Minute}

func lasting(t *rapid.T, s Step) Step {
	s.For = rapid.SampledFrom(durations).Draw(t, "for")
	return s
}

// watched are the resources that controllers watch.
var watched = []string{"localservices", "nodes", "services", "endpointslices", "pods"}

// faulty is what goes wrong.
var faulty = []kind{
	stalls, stalls, stalls, fails, fails, fails, crashes, crashes,
	func(t *rapid.T) Step {
		s := Step{Do: "lag", On: of(t, "resource", watched...)}
		s.For = rapid.SampledFrom([]time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 700 * time.Millisecond,
			2 * time.Second}).Draw(t, "for")
		return s
	},
	do("break", func(t *rapid.T) string { return of(t, "resource", watched...) }),
	do("compact", func(t *rapid.T) string { return of(t, "resource", watched...) }),
	func(t *rapid.T) Step { return lasting(t, Step{Do: "pause"}) },
	// Not strips-labels: see testdata/histories/labels-stripped-from-hostnames.txt.
	do("admission", func(*rapid.T) string { return "" }, "sets-affinity", "sets-label", "sets-policy", "sets-zone",
		"strips-hostname", "strips-node", "strips-owner", "", "", ""),
	do("end-namespace", func(*rapid.T) string { return "b" }),
}

func stalls(t *rapid.T) Step { return lasting(t, Step{Do: "stall", On: of(t, "resource", watched...)}) }

func fails(t *rapid.T) Step {
	on := of(t, "requests", "create,services", "create,services", "patch,services", "delete,services",
		"patch,localservices/status", "get,localservices", "get,nodes", "create,endpointslices",
		"update,endpointslices",
		"patch,pods", "create,services,n1", "create,events", "")
	return lasting(t, Step{Do: "fail", On: on, How: of(t, "outcome", string(Forbidden), string(Invalid), string(
		Conflict),
		string(Busy), string(Internal), string(Unavailable), string(Unsent), string(Lost), string(Hang), string(Late))})
}

func crashes(t *rapid.T) Step {
	return Step{Do: "crash", How: fmt.Sprintf("%d,%s", rapid.IntRange(0, 6).Draw(t, "writes"),
		of(t, "when", "before", "after")), For: 5 * time.Second}
}
