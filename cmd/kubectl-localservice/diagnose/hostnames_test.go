package diagnose

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var sourceName = plan.ServiceName("demo", plan.Source, "")

func groupBy(key string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) { ls.Spec.Mode, ls.Spec.GroupBy = v1alpha1.ModeHostnames, key }
}

// inPlace returns the input for a LocalService with mode Hostnames that is in place: the source, the published
// Service, and an EndpointSlice of each.
func inPlace(ls *v1alpha1.LocalService, nodes []*corev1.Node, pods ...string) Input {
	in := Input{LocalService: ls, Nodes: nodes, ClusterDomain: "cluster.local"}
	for _, template := range templates(ls) {
		service := template.Service("")
		service.UID = types.UID("uid-of-" + service.Name)
		in.Services = append(in.Services, service)
	}
	source := objects.SourceSlice(sourceName, in.Services[0].UID, sourceName+"-1", pods...)
	labelsOf, selected := map[string]labels.Set{}, []string{}
	for _, n := range nodes {
		if labelsOf[n.Name] = n.Labels; plan.Selects(ls, n.Name, labelsOf[n.Name]) {
			selected = append(selected, n.Name)
		}
	}
	names := plan.NamesOf(ls, nodeLabel, selected, func(node, key string) (string, bool) {
		return labelsOf[node].Lookup(key)
	}, func(string) *corev1.Service { return nil })
	names.Source, names.Published = in.Services[0], in.Services[1]
	names.Slices = map[string]*discoveryv1.EndpointSlice{source.Name: source}
	missing := names.Copies().Changes[0]
	in.EndpointSlices = []*discoveryv1.EndpointSlice{source, names.Copy(&missing)}
	return in
}

// TestHostnameReasons checks the name of node n1, which has one ready pod, a, unless a case changes that.
func TestHostnameReasons(t *testing.T) {
	ready := Endpoints{1, 1}
	inPlace := func(ls *v1alpha1.LocalService) Input {
		in := inPlace(ls, nodesWith("n1:zone=x", "n2:zone=y"), "a@n1",
			"b@n2")
		in.Pods = []*corev1.Pod{objects.Pod("a", "n1", objects.Unlabelled), objects.Pod("b", "n2", labelled("n1"))}
		return in
	}
	for name, c := range map[string]struct {
		change    func(in *Input)
		reason    Reason
		message   string // a part of it, where TestWords has no such words
		endpoints Endpoints
	}{
		"ready": {change: func(*Input) {}, endpoints: ready},
		"missing": {func(in *Input) { in.Services = in.Services[:1] }, ServiceMissing,
			"no Service demo for the names; ",
			Endpoints{}},
		"conflict": {func(in *Input) { in.Services = append(in.Services[:1], other("demo", nil)...) }, NameConflict,
			"the name is taken by a Service without an owner (demo); if nothing uses it, delete",
			Endpoints{}},
		"selects pods": {func(in *Input) { in.Services[1].Spec.Selector = labels.Set{"a": "b"} }, ServiceOutdated,
			"the Service demo for the names has another selector than the LocalService says", ready},
		"selects pods, of which one is not ready any more": {func(in *Input) {
			in.Services[1].Spec.Selector = labels.Set{"a": "b"}
			in.EndpointSlices[0].Endpoints[0].Conditions.Ready = new(false)
		}, ServiceOutdated, "yet (a=b)", Endpoints{0, 1}},
		"source missing": {func(in *Input) { in.Services = in.Services[1:] }, ServiceMissing,
			" for the pods; ", ready},
		"source taken": {func(in *Input) { in.Services[0].OwnerReferences = objects.ControlledBy("v1", "X", "x") },
			NameConflict,
			"the name is taken by a Service of X x (v1) (" + sourceName + ")", ready},
		"source outdated": {func(in *Input) { in.LocalService.Spec.Selector["app"] = "x" }, ServiceOutdated,
			"yet (app=demo)", ready},
		"not published by Kubernetes": {func(in *Input) { in.EndpointSlices = nil }, EndpointsOutdated,
			"the pods are not in EndpointSlices yet; kube-controller-manager has not added them yet", Endpoints{}},
		"forged": {func(in *Input) { in.EndpointSlices[0].OwnerReferences = nil }, EndpointsOutdated,
			"", ready},
		"no copy": {func(in *Input) { in.EndpointSlices = in.EndpointSlices[:1] }, EndpointsOutdated,
			"the name is not up to date; the controller has not written it yet", Endpoints{}},
		"copy outdated": {func(in *Input) { in.EndpointSlices[0].Endpoints[0].Conditions.Ready = new(false) },
			EndpointsOutdated, "", Endpoints{0, 1}},
		"copy leads to a pod that is gone": {func(in *Input) {
			in.EndpointSlices[0].Endpoints = in.EndpointSlices[0].Endpoints[1:]
			in.Pods = in.Pods[1:]
		}, EndpointsOutdated, "", Endpoints{0, 1}},
		"copy lacks a pod": {func(in *Input) {
			in.EndpointSlices[0].Endpoints = append(in.EndpointSlices[0].Endpoints,
				objects.Endpoint("c", "n1"))
			in.Pods = append(in.Pods, objects.Pod("c", "n1", objects.Unlabelled))
		}, EndpointsOutdated, "", ready},
		"copy with another port": {func(in *Input) {
			in.EndpointSlices[0].Ports = []discoveryv1.EndpointPort{{Port: new(int32(1))}}
		}, EndpointsOutdated, "", ready},
		"copy of another name outdated": {change: func(in *Input) { in.EndpointSlices[0].Endpoints[1].Zone = new("z") },
			endpoints: ready},
		"copy too many": {func(in *Input) {
			more := in.EndpointSlices[1].DeepCopy()
			more.Name, more.Endpoints[0].Addresses = "more", []string{"10.0.0.9"}
			in.EndpointSlices = append(in.EndpointSlices, more)
		}, EndpointsOutdated, "", ready},
		"pod not published by Kubernetes": {func(in *Input) { in.Pods = append(in.Pods, objects.Pod("c", "n1")) },
			EndpointsOutdated, "not in the EndpointSlices; kube-controller-manager has not added them yet (c)", ready},
		"no pod": {func(in *Input) {
			in.Pods = in.Pods[1:]
			for _, slice := range in.EndpointSlices {
				slice.Endpoints = slice.Endpoints[1:]
			}
		}, NoPods, "no matching pod here (app=demo)", Endpoints{}},
	} {
		t.Run(name, func(t *testing.T) {
			in := inPlace(localService(objects.HostnamesMode))
			c.change(&in)
			got := listOf(t, in).Items[0]
			if got.Reason != c.reason || !strings.Contains(got.Message, c.message) ||
				(c.reason == "") != (got.Message == "") {
				t.Errorf("got %q: %q; want %q: …%q…", got.Reason, got.Message, c.reason, c.message)
			}
			if got.Endpoints != c.endpoints || len(got.Addresses) != c.endpoints.Ready {
				t.Errorf("endpoints %v, addresses %v; want %v", got.Endpoints, got.Addresses, c.endpoints)
			}
			if hasService := name != "missing" && name != "conflict"; got.HasService != hasService {
				t.Errorf("HasService is not %v", hasService)
			}
		})
	}
}

// TestGroups: with groupBy there is an item for each group, and one for each node without a group.
func TestGroups(t *testing.T) {
	in := inPlace(localService(groupBy("zone")),
		nodesWith("n1:zone=x", "n2:zone=Y.1", "n3:zone=x", "a", "b:zone="),
		"z@n1", "y@n3",
		"w@a")
	in.Pods = []*corev1.Pod{objects.Pod("z", "n1"), objects.Pod("y", "n3"), objects.Pod("w", "a")}
	item := func(n Node, podNames ...string) *Node {
		n.DNSAddresses = n.Addresses // The Service is headless.
		for i := 0; i < len(podNames); i += 2 {
			n.Pods = append(n.Pods, Pod{Name: podNames[i], Ready: true, NodeLabel: podNames[i+1]})
		}
		return &n
	}
	nameless := Finding{Reason: NodeWithoutName, State: Empty,
		Cause: "no value for label zone (spec.groupBy), so no name"}
	well, none := Finding{State: Healthy}, Finding{Reason: NoPods, State: Empty, Cause: "no matching pod here",
		About: "app=demo"}
	none.Message = none.CauseAbout()
	nameless.Act = "set the label, or correct spec.groupBy: kubectl get nodes -L zone"
	nameless.Message = nameless.Cause + "; " + nameless.Act
	want := []*Node{
		item(Node{Node: "x", Hostname: "x", Service: "demo", DNSName: "x.demo.default.svc.cluster.local", Finding: well,
			HasService: true, Endpoints: Endpoints{2, 2}, Addresses: []string{"10.0.0.25", "10.0.0.26"}}, "y", "n3", "z",
			"n1"),
		item(Node{Node: "Y.1", Hostname: "y-1", Service: "demo", Finding: none, HasService: true,
			DNSName: "y-1.demo.default.svc.cluster.local"}),
		item(Node{Node: "a", Finding: nameless}, "w", "a"),
		item(Node{Node: "b", Finding: nameless}),
	}
	got := listOf(t, in)
	if diff := cmp.Diff(want, got.Items, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("wrong items (-want +got):\n%s", diff)
	}
	if got.Mode != v1alpha1.ModeHostnames || got.GroupBy != "zone" || got.Message != "" {
		t.Errorf("mode %q by %q, message %q", got.Mode, got.GroupBy, got.Message)
	}
	if want := (Summary{Nodes: 2, Answering: 1}); got.Summary != want {
		t.Errorf("%+v; want %+v", got.Summary, want)
	}
	down(40)(in.Nodes[2])
	lost(in.Pods[1])
	if got := listOf(t, in).Items[0].Act; got != "see kubectl describe node n3" {
		t.Errorf("one of two nodes is down: %s", got)
	}
	in.Nodes[2].Labels = map[string]string{"zone": "new"} // It moves.
	for _, n := range listOf(t, in).Items {
		if isMoved := n.Hostname == "x" || n.Hostname == "new"; isMoved != (n.Reason == EndpointsOutdated) {
			t.Errorf("after the move: %s: %s %s", n.Node, n.Reason, n.Message)
		}
	}
}

// TestKnownHostnames: without permission to list Nodes, the names are the published ones, and that alone is not a
// problem.
func TestKnownHostnames(t *testing.T) {
	selecting := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{"disk": "ssd"} }
	for name, c := range map[string]struct {
		ls    *v1alpha1.LocalService
		label string // of the nodes
		want  string
	}{
		"nodes":  {localService(objects.HostnamesMode), "", "n1.example.com:n1-example-com n2:n2 n3:n3 "},
		"groups": {localService(groupBy("zone")), "zone=x", "x:x "},
		"selected nodes": {localService(objects.HostnamesMode, selecting), "disk=ssd",
			"n1.example.com:n1-example-com n2:n2 "},
	} {
		in := inPlace(c.ls, nodesWith("n1.example.com:"+c.label, "n2:"+c.label),
			"a@n1.example.com", "b@n2")
		in.Pods = []*corev1.Pod{objects.Pod("a", "n1.example.com"), objects.Pod("b", "n2"), objects.Pod("c", "n3"),
			objects.Pod("d", "")}
		in.Nodes = nil
		var got string
		for _, n := range listOf(t, in).Items {
			got += n.Node + ":" + n.Hostname + " "
			if (n.Reason != "") != (n.Node == "n3") {
				t.Errorf("%s: %s: %s %s", name, n.Node, n.Reason, n.Message)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
