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
