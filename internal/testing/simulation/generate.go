package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// How often something happens in a history after its beginning. A burst counts as one, so there are often 30 steps or
// more.
const (
	fewest = 20
	most   = 30
)

// Random returns the random history of a seed.
func Random(seed int) *History {
	return rapid.Custom(func(t *rapid.T) *History {
		d := &drawing{T: t, menu: drawMenu(t)}
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
		// In half of the histories, nothing goes wrong between the replicas and the API server until the end.
		isCalm := rapid.Bool().Draw(t, "calm")
		if rapid.IntRange(0, 7).Draw(t, "distant") == 7 {
			h.Steps = append(h.Steps, Step{Do: "distance", How: distance(d)})
		}
		h.Steps = append(h.Steps, beginning(d)...)
		for _, steps := range rapid.SliceOfN(step(d, isCalm), fewest, most).Draw(t, "steps") {
			h.Steps = append(h.Steps, steps...)
		}
		if isCalm {
			h.Steps = append(h.Steps, rush(d)...)
			h.Steps = append(h.Steps, revoke(d)...)
		} else {
			h.Steps = append(h.Steps, ending(d)...)
		}
		return h
	}).Example(seed)
}

// beginning returns what most histories begin with, so that something can go wrong.
func beginning(d *drawing) []Step {
	var out []Step
	for _, kind := range []func(*drawing) Step{apply, runPod, apply, runPod} {
		if rapid.IntRange(0, 9).Draw(d.T, "begin") > 0 {
			out = append(out, kind(d))
		}
	}
	return out
}

// ending returns what one of four histories with faults ends with, so that a wait for a cache that backs off is seen:
// once all else has settled, nodes come and go while a watch stalls, and a backoff since then would go on for long.
func ending(d *drawing) []Step {
	if rapid.IntRange(0, 3).Draw(d.T, "end") < 3 {
		return nil
	}
	change := func(after time.Duration) Step {
		return Step{After: after, Do: d.of("end", "add-node", "remove-node"), On: node(d)}
	}
	return []Step{{After: retryTime, Do: "stall", On: watched(d), For: time.Minute}, change(0), change(time.Second),
		change(time.Second), {After: 45 * time.Second, Do: "label-node", On: node(d), How: "disk=ssd"}}
}

// rush returns what half of the histories without faults end with, so that it is seen if one namespace holds up the
// other: once all else has settled, all Services or pods in one have to be written while its admission is slow, and
// then something in the other.
func rush(d *drawing) []Step {
	if !rapid.Bool().Draw(d.T, "rush") {
		return nil
	}
	slow, other := "a", "b"
	if rapid.Bool().Draw(d.T, "swap") {
		slow, other = other, slow
	}
	out := []Step{{Do: "quota", On: "a"}, {Do: "quota", On: "b"}}
	for _, name := range nodes[:4] {
		out = append(out, Step{Do: "add-node", On: name})
	}
	keys := []string{slow + "/x", slow + "/y", slow + "/x-n0", other + "/x"}
	for _, key := range keys {
		out = append(out, Step{Do: "apply", On: key, How: "port-80"})
	}
	resource := d.of("rush", "services", "pods")
	out = append(out, Step{After: retryTime, Do: "slow-admission", On: slow + "," + resource,
		How: d.of("admission", "10s", "10s", "30s", "1m"), For: time.Minute})
	for _, key := range keys {
		if resource == "services" {
			out = append(out, Step{Do: "edit", On: key, How: "port-81"})
		}
	}
	if resource == "pods" {
		for _, workload := range []string{"/w0", "/w1", "/c0"} {
			out = append(out, Step{Do: "scale", On: slow + workload, How: "3"})
		}
		out = append(out, Step{Do: "add-pod", On: other + "/p0", How: "n0"})
	}
	// The first answers have come by then, or the second ones.
	afterwards := []time.Duration{time.Second, 11 * time.Second, 21 * time.Second}
	out[len(out)-1].After = rapid.SampledFrom(afterwards).Draw(d.T, "after")
	return append(out, Step{After: 20 * time.Second, Do: "label-node", On: node(d), How: "disk=ssd"})
}

// revoke returns what a quarter of the histories without faults end with, so that it is seen whether a permission that
// is taken away is reported.
func revoke(d *drawing) []Step {
	if rapid.IntRange(0, 3).Draw(d.T, "revoke") < 3 {
		return nil
	}
	return []Step{{Do: "quota", On: "a"}, {Do: "add-node", On: "n0"}, {After: retryTime, Do: "fail",
		On: "create,services", How: string(Denied), For: time.Minute}, {Do: "recreate", On: "a/x", How: "port-80"},
		{After: 30 * time.Second, Do: "reported", On: "a/x"}, {After: 45 * time.Second, Do: "label-node", On: node(d),
			How: "disk=ssd"}}
}

var delays = []time.Duration{0, 0, 10 * time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, 20 * time.Second, 45 * time.Second,
	150 * time.Second}

// step returns what happens next: one thing or, often, a burst of things while some watch is stalled or late, or some
// requests fail.
func step(d *drawing, isCalm bool) *rapid.Generator[[]Step] {
	usual := offered(d.menu, "do", often)
	kinds := usual
	if !isCalm {
		kinds = slices.Concat(usual, offered(d.menu, "do", faulty))
	}
	all, short := offered(d.menu, "after", delays), offered(d.menu, "after", delays[:6])
	return rapid.Custom(func(t *rapid.T) []Step {
		d := &drawing{T: t, menu: d.menu}
		out := []Step{rapid.SampledFrom(kinds).Draw(t, "do").make(d)}
		out[0].After = rapid.SampledFrom(all).Draw(t, "after")
		for range rapid.SampledFrom([]int{0, 0, 0, 2, 3}).Draw(t, "burst") {
			s := rapid.SampledFrom(usual).Draw(t, "do").make(d)
			s.After = rapid.SampledFrom(short).Draw(t, "after")
			out = append(out, s)
		}
		if !isCalm && len(out) > 1 {
			late := rapid.SampledFrom([]func(*drawing) Step{stalls, stalls, lags, fails, slows, outages}).Draw(t,
				"late")
			out = append([]Step{late(d)}, out...)
			out[0].After, out[1].After = out[1].After, 0
		}
		return out
	})
}

func local(d *drawing) string {
	return d.of("namespace", "a", "a", "a", "b") + "/" + d.of("name", "x", "x", "x", "y", "x-n0")
}

func service(d *drawing) string {
	ls := local(d)
	switch d.of("which", "node", "node", "node", "node", "node", "node", "published", "source") {
	case "published":
		return ls
	case "source":
		return ls + "-hostnames"
	}
	return ls + "-" + d.of("node", "n0", "n1", "n2", "n0-n1", "n4")
}

func node(d *drawing) string { return d.of("node", append(nodes[:3:3], nodes...)...) }

func pod(d *drawing) string {
	return d.of("namespace", "a", "a", "a", "b") + "/p" + d.of("pod", "0", "1", "2", "3")
}

// workload is a ReplicaSet or a CloneSet.
func workload(d *drawing) string {
	return d.of("namespace", "a", "a", "a", "b") + "/" + d.of("workload", "w0", "w0", "w1", "c0")
}

func spec(d *drawing) string { return d.of("spec", slices.Sorted(maps.Keys(specs))...) }

// kind is a kind of step, by its name.
type kind struct {
	name string
	make func(d *drawing) Step
}

func (k kind) String() string { return k.name }

func do(do string, on func(d *drawing) string, how ...string) kind {
	return kind{do, func(d *drawing) Step {
		s := Step{Do: do, On: on(d)}
		if len(how) > 0 {
			s.How = d.of(do, how...)
		}
		return s
	}}
}

// variants returns the changes that one edit makes to a spec.
func variants(d *drawing, most int) string {
	out := spec(d)
	for range rapid.IntRange(0, most-1).Draw(d.T, "more") {
		out += "," + spec(d)
	}
	return out
}

func edit(d *drawing) Step { return Step{Do: "edit", On: local(d), How: variants(d, 2)} }

func apply(d *drawing) Step { return Step{Do: "apply", On: local(d), How: variants(d, 3)} }

func recreate(d *drawing) Step { return Step{Do: "recreate", On: local(d), How: variants(d, 3)} }

// spoil changes a Service, most likely one of ours.
var spoil = do("edit-service", service, slices.Sorted(maps.Keys(serviceEdits))...)

func runPod(d *drawing) Step {
	return Step{Do: "add-pod", On: pod(d), How: node(d) + d.of("add-pod", "", "", "", ",stale", ",other", ",starting")}
}

var (
	scale = do("scale", workload, "0", "1", "2", "3", "1,selects", "2,selects", "2,exists", "1,stale", "2,stale",
		"3,stale")
	relabel  = do("label-node", node, "disk=ssd", "disk=hdd", "zone=east", "zone=north", "zone=")
	switches = do("edit", local, "hostnames", "zones", "hdd", "ssd", "annotation")
)

func nothing(*drawing) string { return "" }

func quotas(d *drawing) string { return d.of("namespace", "a", "b") }

// often is what people and clusters do. What they do more often appears more often.
var often = []kind{
	{"apply", apply}, {"apply", apply}, {"edit", edit}, {"edit", edit}, {"edit", edit},
	do("add-node", node), do("add-node", node), do("remove-node", node), do("remove-node", node),
	do("return-node", node, "", "300ms", "1s"), relabel, relabel, do("take-back", local), switches, switches,
	do("spoil", local, slices.Sorted(maps.Keys(invalidSpecs))...), do("edit-status", local),
	do("delete", local, "", "", "Orphan", "Foreground"), {"recreate", recreate},
	do("forge", service, "plain", "lookalike", "orphan", "claims", "claims-other"),
	do("drop-service", service), do("drop-service", service),
	spoil, spoil, spoil, spoil,
	do("mesh", service, "ready", "ready", "unready", ""), do("mesh", local, "ready", "unready", ""),
	do("take-name", local, "controlled", "alien", ""),
	do("edit-slice", local, "labels", "owner", "endpoints"), do("drop-slice", local),
	{"add-pod", runPod}, {"add-pod", runPod}, do("ready-pod", pod, "no", "yes"), do("remove-pod", pod),
	do("complete-pod", pod), scale, scale, scale, do("end-workload", workload, "", "Orphan", "Foreground"),
	do("restart", nothing), do("quota", quotas, "", "", "2", "5"),
}

var durations = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second, 2 * time.Minute}

func lasting(d *drawing, s Step) Step {
	s.For = rapid.SampledFrom(offered(d.menu, "for", durations)).Draw(d.T, "for")
	return s
}

func watched(d *drawing) string {
	return d.of("resource", "localservices", "nodes", "services", "endpointslices", "pods")
}

// faulty is what goes wrong.
var faulty = []kind{
	{"stall", stalls}, {"stall", stalls}, {"stall", stalls}, {"fail", fails}, {"fail", fails}, {"fail", fails},
	{"crash", crashes}, {"crash", crashes}, {"lag", lags}, do("break", watched), do("compact", watched),
	{"pause", func(d *drawing) Step { return lasting(d, Step{Do: "pause"}) }},
	do("admission", nothing, "sets-affinity", "sets-label", "sets-policy", "sets-protocol", "sets-zone",
		"strips-hostname", "strips-labels", "strips-node", "strips-owner", "strips-and-counts", "sets-rack",
		"strips-rack", "counts-racks", "", "", ""),
	{"restart-server", outages}, {"restart-server", outages},
	do("end-namespace", func(*drawing) string { return "b" }), {"slow-admission", slows}, {"slow-admission", slows},
	{"distance", func(d *drawing) Step { return lasting(d, Step{Do: "distance", How: distance(d)}) }},
}

func stalls(d *drawing) Step { return lasting(d, Step{Do: "stall", On: watched(d)}) }

func lags(d *drawing) Step {
	s := Step{Do: "lag", On: watched(d)}
	s.For = rapid.SampledFrom([]time.Duration{20 * time.Millisecond, 200 * time.Millisecond, 700 * time.Millisecond,
		2 * time.Second, 4 * time.Second}).Draw(d.T, "for")
	return s
}

func fails(d *drawing) Step {
	on := d.of("requests", "create,services", "create,services", "patch,services", "delete,services",
		"update,localservices/status", "get,localservices", "get,nodes", "create,endpointslices",
		"update,endpointslices", "patch,pods", "get,replicasets", "create,services,n1", "create,events", "")
	return lasting(d, Step{Do: "fail", On: on, How: d.of("outcome", outcomes...)})
}

// outages stop the API server, from a restart in place to a failure of its machine.
func outages(d *drawing) Step {
	s := Step{Do: "restart-server", On: d.of("writes", "0", "0", "1", "2", "4"), How: d.of("roles", "", "roles")}
	s.For = rapid.SampledFrom([]time.Duration{300 * time.Millisecond, 3 * time.Second, 12 * time.Second,
		44 * time.Second, 3 * time.Minute}).Draw(d.T, "for")
	return s
}

// distance is how much longer each request takes.
func distance(d *drawing) string { return d.of("distance", "5ms", "20ms", "80ms", "300ms") }

// slows makes admission slow. The longest answers come when the client has given up.
func slows(d *drawing) Step {
	return lasting(d, Step{Do: "slow-admission", On: d.of("slow", "a,services", "a,services", "a", "b,services", "b"),
		How: d.of("admission", "1s", "3s", "10s", "10s", "10s,refuses", "30s", "30s,refuses", "1m")})
}

func crashes(d *drawing) Step {
	return Step{Do: "crash", How: fmt.Sprintf("%d,%s", rapid.IntRange(0, 6).Draw(d.T, "writes"),
		d.of("when", "before", "after")), For: 5 * time.Second}
}
