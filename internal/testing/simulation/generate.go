package simulation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// How often something happens in a history after its beginning. A burst counts as one, so there are often 30 steps or
// more.
const (
	fewest = 20
	most   = 30
)

// Random returns the random history of a seed.
func Random(seed int) *History {
	d := &drawing{Rand: rand.New(rand.NewPCG(uint64(seed), 0))}
	if d.oneOf(2) {
		d.menu = menu(d.Uint64())
	}
	h := &History{Seed: d.Uint64N(1 << 20), Replicas: 1, Nodes: d.IntN(5), Addresses: plenty}
	if d.oneOf(4) {
		h.Addresses = 3
	}
	if d.oneOf(16) {
		h.Replicas = 2
	}
	if d.oneOf(8) {
		h.Distance = pick(d, 5*time.Millisecond, 20*time.Millisecond, 80*time.Millisecond, 300*time.Millisecond)
	}
	// Most histories begin with something, so that it can go wrong.
	for _, kind := range []func(*drawing) Step{apply, runPod, apply, runPod} {
		if !d.oneOf(10) {
			h.Steps = append(h.Steps, kind(d))
		}
	}
	// In half of the histories, nothing goes wrong between the replicas and the API server until the end.
	isCalm := d.oneOf(2)
	for range fewest + d.IntN(most-fewest+1) {
		h.Steps = append(h.Steps, next(d, isCalm)...)
	}
	if isCalm && d.oneOf(2) {
		h.Steps = append(h.Steps, rush(d)...)
	}
	return h
}

// rush returns what shows whether one namespace holds up the other: once all else has settled, all Services or pods in
// one have to be written while its admission is slow, and then something in the other.
func rush(d *drawing) []Step {
	out := []Step{{Do: "quota", On: "a"}, {Do: "quota", On: "b"}}
	for _, name := range nodes[:4] {
		out = append(out, Step{Do: "add-node", On: name})
	}
	keys := []string{"a/x", "a/y", "a/x-n0", "b/x"}
	for _, key := range keys {
		out = append(out, Step{Do: "apply", On: key, How: "port-80"})
	}
	resource := "services"
	if d.oneOf(2) {
		resource = "pods"
	}
	out = append(out, Step{After: retryTime, Do: "slow-admission", On: "a," + resource,
		How: d.of("admission", "10s", "10s", "30s", "1m"), For: time.Minute})
	if resource == "services" {
		for _, key := range keys {
			out = append(out, Step{Do: "edit", On: key, How: "port-81"})
		}
	} else {
		for _, key := range []string{"a/w0", "a/w1", "a/w2"} {
			out = append(out, Step{Do: "scale", On: key, How: "3"})
		}
		out = append(out, Step{Do: "add-pod", On: "b/p0", How: "n0"})
	}
	// The first answers have come by then, or the second ones.
	out[len(out)-1].After = pick(d, time.Second, 11*time.Second, 21*time.Second)
	return append(out, Step{After: 20 * time.Second, Do: "label-node", On: node(d), How: "disk=ssd"})
}

var delays = []time.Duration{0, 0, 10 * time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond,
	300 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, 20 * time.Second, 45 * time.Second,
	150 * time.Second}

// next returns what happens next: one thing or, often, a burst of things while some watch is stalled or late, or some
// requests fail.
func next(d *drawing, isCalm bool) []Step {
	usual := offered(d.menu, "do", often)
	kinds := usual
	if !isCalm {
		kinds = slices.Concat(usual, offered(d.menu, "do", faulty))
	}
	out := []Step{pick(d, kinds...).make(d)}
	out[0].After = pick(d, offered(d.menu, "after", delays)...)
	for range pick(d, 0, 0, 0, 2, 3) {
		s := pick(d, usual...).make(d)
		s.After = pick(d, offered(d.menu, "after", delays[:6])...)
		out = append(out, s)
	}
	if !isCalm && len(out) > 1 {
		late := pick(d, stalls, stalls, lags, fails, slows, outages)(d)
		late.After, out[0].After = out[0].After, 0
		out = append([]Step{late}, out...)
	}
	return out
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

func replicaSet(d *drawing) string {
	return d.of("namespace", "a", "a", "a", "b") + "/" + d.of("workload", "w0", "w0", "w1")
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
	for range d.IntN(most) {
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
	scales = do("scale", replicaSet, "0", "1", "2", "3", "1,selects", "2,selects", "2,exists", "1,stale", "2,stale",
		"3,stale")
	relabel = do("label-node", node, "disk=ssd", "disk=hdd", "zone=east", "zone=north", "zone=",
		"zone=East", "zone=north.1", "zone=North_1")
	switches = do("edit", local, "hostnames", "zones", "hdd", "ssd", "annotation")
)

func nothing(*drawing) string { return "" }

func quotas(d *drawing) string { return pick(d, namespaces...) }

// often lists what people and clusters do. What they do more often appears more often.
var often = []kind{
	{"apply", apply}, {"apply", apply}, {"edit", edit}, {"edit", edit}, {"edit", edit},
	do("add-node", node), do("add-node", node), do("remove-node", node), do("remove-node", node),
	do("return-node", node, "", "300ms", "1s"), relabel, relabel, switches, switches,
	do("spoil", local, slices.Sorted(maps.Keys(invalidSpecs))...), do("edit-status", local),
	do("delete", local, "", "", "Orphan", "Foreground"), {"recreate", recreate},
	do("forge", service, "plain", "lookalike", "orphan", "claims", "claims-ours", "claims-other"),
	do("drop-service", service), do("drop-service", service),
	spoil, spoil, spoil, spoil,
	do("edit-slice", local, "labels", "owner", "endpoints", "", ""),
	{"add-pod", runPod}, {"add-pod", runPod}, do("ready-pod", pod, "no", "yes"), do("remove-pod", pod),
	do("complete-pod", pod), scales, scales, scales, do("end-workload", replicaSet, "", "Orphan", "Foreground"),
	do("restart", nothing), do("quota", quotas, "", "", "2", "5"),
}

var durations = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 20 * time.Second, 2 * time.Minute}

func lasting(d *drawing, s Step) Step {
	s.For = pick(d, offered(d.menu, "for", durations)...)
	return s
}

func watched(d *drawing) string {
	return d.of("resource", "localservices", "nodes", "services", "endpointslices", "pods")
}

// faulty lists what goes wrong.
var faulty = []kind{
	{"stall", stalls}, {"stall", stalls}, {"stall", stalls}, {"fail", fails}, {"fail", fails}, {"fail", fails},
	{"crash", crashes}, {"crash", crashes}, {"lag", lags}, do("break", watched), do("compact", watched),
	{"pause", func(d *drawing) Step { return lasting(d, Step{Do: "pause"}) }},
	do("admission", nothing, "sets-affinity", "sets-label", "sets-policy", "sets-protocol", "sets-zone",
		"strips-hostname", "strips-labels", "strips-node", "strips-owner", "strips-and-counts", "sets-rack",
		"strips-rack", "counts-racks", "", "", ""),
	do("oppose", nothing, "sets-affinity", "sets-label", "sets-policy", "sets-protocol", "sets-zone", "strips-hostname",
		"strips-labels", "strips-node", "strips-owner", ""),
	{"restart-server", outages}, {"restart-server", outages},
	{"slow-admission", slows}, {"slow-admission", slows},
}

func stalls(d *drawing) Step { return lasting(d, Step{Do: "stall", On: watched(d)}) }

func lags(d *drawing) Step {
	return Step{Do: "lag", On: watched(d), For: pick(d, 20*time.Millisecond, 200*time.Millisecond, 700*time.Millisecond,
		2*time.Second, 4*time.Second)}
}

func fails(d *drawing) Step {
	on := d.of("requests", "create,services", "create,services", "patch,services", "delete,services",
		"update,localservices/status", "get,localservices", "get,nodes", "create,endpointslices",
		"update,endpointslices", "patch,pods", "get,replicasets", "create,services,n1", "create,events", "")
	return lasting(d, Step{Do: "fail", On: on, How: d.of("outcome", outcomes...)})
}

// outages stop the API server, from a restart in place to a failure of its machine.
func outages(d *drawing) Step {
	return Step{Do: "restart-server", On: d.of("moment", "0s", "20ms", "150ms", "500ms"), How: d.of("roles", "", "roles", "502", "504", "429"),
		For: pick(d, 300*time.Millisecond, 3*time.Second, 12*time.Second, 44*time.Second, 3*time.Minute)}
}

// slows makes admission slow. The longest answers come when the client has given up.
func slows(d *drawing) Step {
	return lasting(d, Step{Do: "slow-admission", On: d.of("slow", "a,services", "a,services", "a", "b,services", "b"),
		How: d.of("admission", "1s", "3s", "10s", "10s", "10s,refuses", "30s", "30s,refuses", "1m")})
}

func crashes(d *drawing) Step {
	return Step{Do: "crash", For: 5 * time.Second,
		How: fmt.Sprintf("%d,%s", d.IntN(7), d.of("when", "before", "after"))}
}
