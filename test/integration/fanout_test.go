package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestFanOut is the main story: one Service for each node, with exactly the right content and no request too many.
func TestFanOut(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "fanout")
	f := s.newFence()
	nodes := s.AddNodes("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
	f.passNodes()
	s.ResetCount()
	ls := s.CreateReady("demo", func(ls *v1alpha1.LocalService) {
		ls.Spec.ServiceMetadata = &v1alpha1.ServiceMetadata{
			Labels:      map[string]string{"team": "infra"},
			Annotations: map[string]string{"example.com/note": "hello"},
		}
	})
	if ls.Status.Nodes != int32(len(nodes)) || ls.Status.Services != int32(len(nodes)) {
		t.Errorf("status: %+v; want %d nodes and Services", ls.Status, len(nodes))
	}
	for name, service := range s.MustOwn(ls, len(nodes)) {
		node := strings.TrimPrefix(name, "demo-")
		if !slices.Contains(nodes, node) {
			t.Errorf("Service %s is for no node", name)
		}
		checkService(t, service, ls, node)
	}
	f.passAll()
	s.WantWrites("services", fmt.Sprintf("%d create services 201", len(nodes)))
	status := s.Requests().Resource("localservices/status")
	if n, span := len(status), status.Last().Sub(status.First()); n < 1 || n > 3+int(span/time.Second) {
		t.Errorf("the status was written %d times in %v; want about once a second for the progress", n, span)
	}
	if other := s.Requests().Writes().Where(notAbout("services", "localservices", "events")); len(other) > 0 {
		t.Errorf("the controller also wrote: %s", other)
	}
	if reads := s.Requests().Verb("get", "list", "watch"); len(reads) > 0 {
		t.Errorf("the controller, which has its caches, also read: %s", reads)
	}
}

// checkService compares a Service, to the last field that is not the API server's own, with what the LocalService of
// TestFanOut is to have on a node.
func checkService(t *testing.T, service *corev1.Service, ls *v1alpha1.LocalService, node string) {
	t.Helper()
	singleStack, cluster := corev1.IPFamilyPolicySingleStack, corev1.ServiceInternalTrafficPolicyCluster
	want := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "demo-" + node,
			Namespace: ls.Namespace,
			Labels:    map[string]string{"owner": "demo", "vm/rack": node, "team": "infra"},
			Annotations: map[string]string{
				"example.com/note":                  "hello",
				"localservice.dev/node":             node,
				"localservice.dev/applied-metadata": `{"labels":["team"],"annotations":["example.com/note"]}`,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "localservice.dev/v1alpha1", Kind: "LocalService", Name: "demo", UID: ls.UID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeClusterIP,
			ClusterIP:             "None",
			ClusterIPs:            []string{"None"},
			Ports:                 []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
			Selector:              map[string]string{"app": "demo", "vm/rack": node},
			SessionAffinity:       corev1.ServiceAffinityNone,
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
			IPFamilyPolicy:        &singleStack,
			InternalTrafficPolicy: &cluster,
		},
	}
	got := service.DeepCopy()
	for _, entry := range got.ManagedFields {
		if entry.Manager != "local-service-controller" {
			t.Errorf("Service %s was also written by %s", got.Name, entry.Manager)
		}
	}
	got.UID, got.ResourceVersion, got.CreationTimestamp, got.ManagedFields = "", "", metav1.Time{}, nil
	if err := framework.Equal("Service", got, want); err != nil {
		t.Error(err)
	}
}

// notAbout keeps the requests that are about no resource of these.
func notAbout(resources ...string) func(*framework.Request) bool {
	return func(r *framework.Request) bool { return !slices.Contains(resources, r.ObjectRef.Resource) }
}

func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "nodes")
	f := s.newFence()
	node := s.AddNodes("a", "b")
	ls := s.CreateReady("demo")
	f.passLocalServices()

	// Each step is one event, and says which writes of Services it may cause.
	steps := []struct {
		name   string
		do     func()
		owns   []string
		writes string
	}{
		{"a node joins", func() { node = append(node, s.AddNodes("c")...) }, []string{"a", "b", "c"}, "1 create services 201"},
		{"a node leaves", func() { s.DeleteNode(node[0]) }, []string{"b", "c"}, "1 delete services 200"},
		{"a node is not selected any more", func() { s.PatchNode(node[1], `{"metadata":{"labels":{"scene":"another"}}}`) }, []string{"c"}, "1 delete services 200"},
		{"a node is selected", func() { s.PatchNode(node[1], `{"metadata":{"labels":{"scene":"`+s.Namespace+`"}}}`) }, []string{"b", "c"}, "1 create services 201"},
		{"a node is not selected by any LocalService", func() {
			s.CreateNode(s.NodeName("d"), nil)
			s.PatchNode(s.NodeName("d"), `{"metadata":{"labels":{"scene":null}}}`)
		}, []string{"b", "c"}, ""},
	}
	for _, step := range steps {
		s.ResetCount()
		step.do()
		names := make([]string, len(step.owns))
		for i, name := range step.owns {
			names[i] = "demo-" + s.NodeName(name)
		}
		s.WaitServices(ls, names...)
		if got := s.WaitStatusNodes("demo", len(names)); got.Status.Services != int32(len(names)) {
			t.Errorf("%s: status.services is %d; want %d", step.name, got.Status.Services, len(names))
		}
		f.passNodes()
		if step.writes != "" {
			s.WantWrites("services", step.writes)
		}
	}
	// The node of the last step has lost the label that says whose it is.
	s.DeleteNode(s.NodeName("d"))
}

// TestNodeHeartbeats tests that what is written to nodes all the time causes no work: not even a look at a
// LocalService.
func TestNodeHeartbeats(t *testing.T) {
	t.Parallel()
	s := newScene(t, solo(t), "heartbeat")
	controller := s.NewController(t)
	f := s.newFence()
	node := s.AddNodes("a", "b")[0]
	s.CreateReady("demo")
	f.passAll()
	s.ResetCount()
	before := s.mustQueued(controller)
	const beats = 50
	for i := range beats {
		s.PatchNode(node, fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"beat %d","lastHeartbeatTime":%q}]}}`, i, time.Now().Format(time.RFC3339)), "status")
		s.PatchNode(node, fmt.Sprintf(`{"metadata":{"annotations":{"example.com/beat":"%d"}}}`, i))
		s.PatchNode(node, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, i%2 == 0))
	}
	f.passNodes()
	// The fence is a few.
	if n := s.mustQueued(controller) - before; n >= beats {
		t.Errorf("%d heartbeats put LocalServices into the queue %d times", beats, n)
	}
	s.PatchNode(node, `{"metadata":{"labels":{"example.com/any":"thing"}}}`)
	f.passNodes()
	if requests := s.Requests(); len(requests) > 0 {
		s.Fatalf("heartbeats caused requests: %s", requests)
	}
}

func TestNoNodes(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "nonodes")
	s.Create("demo")
	ls := s.WaitReady("demo")
	if err := framework.CheckCondition(ls, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonNoNodes); err != nil {
		t.Error(err)
	}
	s.AddNodes("a")
	s.WaitServices(ls, "demo-"+s.NodeName("a"))
	if err := framework.CheckCondition(s.WaitStatusNodes("demo", 1), v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonServicesInPlace); err != nil {
		t.Error(err)
	}
}

func TestEveryFieldNodeSelector(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "selector")
	s.CreateNode(s.NodeName("fast"), map[string]string{"disk": "ssd"})
	s.CreateNode(s.NodeName("slow"), map[string]string{"disk": "hdd"})
	ls := s.CreateReady("demo")
	s.WaitServices(ls, "demo-"+s.NodeName("fast"), "demo-"+s.NodeName("slow"))
	s.ResetCount()
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["disk"] = "ssd" })
	s.WaitServices(ls, "demo-"+s.NodeName("fast"))
	s.WaitReady("demo")
	s.WantWrites("services", "1 delete services 200")
	s.ResetCount()
	s.Update("demo", func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector["disk"] = "hdd" })
	s.WaitServices(ls, "demo-"+s.NodeName("slow"))
	s.WaitReady("demo")
	if got := s.Requests().Resource("services").Writes(); len(got) != 2 || len(got.Verb("create")) != 1 || len(got.Verb("delete")) != 1 {
		t.Errorf("writes of Services: %s; want a create and a delete", got)
	}
}

// TestNamesOfNodes tests the names of Services for all sorts of nodes that there are in the field.
func TestNamesOfNodes(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "names")
	longest := strings.Repeat("n", 63) + strings.Repeat("."+strings.Repeat("o", 62), 2)
	longest += "." + strings.Repeat("p", validation.DNS1123SubdomainMaxLength-len(longest)-1)
	fitting := s.Namespace + strings.Repeat("x", 58-len(s.Namespace)) // 63 characters together with "demo-"
	nodes := []string{
		"node1-" + s.Namespace,
		"1-" + s.Namespace, // begins with a digit
		"ip-10-0-0-3.ec2.internal." + s.Namespace,
		"ip-10-0-0-3-ec2.internal." + s.Namespace, // the same with dashes for dots
		"ip-10-0-0-3-ec2-internal-" + s.Namespace, // and so is this
		"worker-0.ocp.example.com." + s.Namespace,
		fitting,
		s.Namespace + strings.Repeat("x", 59-len(s.Namespace)), // 64
		s.Namespace + strings.Repeat("y", 64-len(s.Namespace)), // too long for a label value
		longest,
		longest[:len(longest)-1] + "q", // differs in the last of 253 characters
	}
	for _, node := range nodes {
		s.CreateNode(node, nil)
	}
	ls := s.CreateReady("demo")
	name52 := strings.Repeat("l", 52)
	long := s.CreateReady(name52)
	owned, ownedLong := s.MustOwn(ls, len(nodes)), s.MustOwn(long, len(nodes))
	for _, node := range nodes {
		for localService, services := range map[string]map[string]*corev1.Service{"demo": owned, name52: ownedLong} {
			service := services[naming.ServiceName(localService, node)]
			if service == nil {
				t.Errorf("LocalService %s has no Service of the name for node %s among %v", localService, node, slices.Sorted(maps.Keys(services)))
				continue
			}
			if got := service.Annotations[v1alpha1.NodeAnnotationKey]; got != node {
				t.Errorf("Service %s has node %s in its annotation; want %s", service.Name, got, node)
			}
			value := service.Spec.Selector[nodeLabel]
			if value != naming.NodeLabelValue(node) || service.Labels[nodeLabel] != value {
				t.Errorf("Service %s selects pods of %s and has the label %s; want %s", service.Name, value, service.Labels[nodeLabel], naming.NodeLabelValue(node))
			}
		}
	}
	// Whoever does not compute names finds a node's Service by two labels.
	for _, node := range nodes {
		found, err := s.ServiceClient().List(s.Ctx(), metav1.ListOptions{LabelSelector: labels.Set{"owner": "demo", "vm/rack": naming.NodeLabelValue(node)}.String()})
		s.Must(err)
		if len(found.Items) != 1 || found.Items[0].Annotations["localservice.dev/node"] != node {
			t.Errorf("%d Services have the labels owner=demo and vm/rack=%s; want that of node %s", len(found.Items), naming.NodeLabelValue(node), node)
		}
	}
	// The promise that users type.
	for _, node := range nodes[:2] {
		if owned["demo-"+node] == nil {
			t.Errorf("node %s has no Service demo-%s", node, node)
		}
	}
	if name := "demo-" + fitting; len(name) != 63 || owned[name] == nil {
		t.Errorf("node %s has no Service %s of %d characters", fitting, name, len(name))
	}
}

// wantUntouched fails unless a Service is the same as it was, to its resource version.
func (s *scene) wantUntouched(service *corev1.Service) {
	s.T.Helper()
	now, err := s.Kube.CoreV1().Services(service.Namespace).Get(s.Ctx(), service.Name, metav1.GetOptions{})
	s.Must(err)
	if now.UID != service.UID || now.ResourceVersion != service.ResourceVersion {
		s.Fatalf("Service %s/%s was changed: from %+v to %+v", service.Namespace, service.Name, service, now)
	}
}

func TestManyLocalServicesShareANode(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "many")
	const count = 20
	for i := range count {
		s.Create(fmt.Sprintf("app%d", i))
	}
	for i := range count {
		s.WaitReady(fmt.Sprintf("app%d", i))
	}
	node := s.AddNodes("a")[0]
	for i := range count {
		s.WaitStatusNodes(fmt.Sprintf("app%d", i), 1)
		if service := s.GetService(fmt.Sprintf("app%d-%s", i, node)); service.Spec.Selector["app"] != fmt.Sprintf("app%d", i) {
			t.Errorf("Service %s selects %v", service.Name, service.Spec.Selector)
		}
	}
	s.WantWrites("services", fmt.Sprintf("%d create services 201", count))
}

// TestSpecChangedWhileFanningOut tests that the last word counts, however quickly the words follow each other.
func TestSpecChangedWhileFanningOut(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "quick")
	for i := range 30 {
		s.CreateNode(s.NodeName(fmt.Sprint(i)), nil)
	}
	s.Create("demo")
	for port := range int32(10) {
		patch := fmt.Sprintf(`{"spec":{"ports":[{"name":"http","port":%d}]}}`, 8000+port)
		_, err := s.LocalServiceClient().Patch(s.Ctx(), "demo", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		s.Must(err)
	}
	ls := s.WaitStatusNodes("demo", 30)
	for name, service := range s.MustOwn(ls, 30) {
		if service.Spec.Ports[0].Port != 8009 {
			t.Errorf("Service %s has port %d; want 8009", name, service.Spec.Ports[0].Port)
		}
	}
}
