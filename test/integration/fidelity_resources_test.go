package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var allVerbs = []string{"create", "create", "create", "update", "patch", "patch", "patch", "patch", "delete", "get",
	"list"}

var services = target[*corev1.Service]{
	kind: corev1.SchemeGroupVersion.WithResource("services"),
	client: func(s *side, namespace string) client[*corev1.Service] {
		return s.kube.CoreV1().Services(namespace)
	},
	verbs: allVerbs,
	names: []string{"a", "a", "a", "b", "b", "c", "A", "a.b"},
	contents: specs("", "clusterIP: None", "clusterIP: None, selector: {app: demo}, ports: [{port: 80}]",
		"ports: [{port: 80, targetPort: 8080}]", "ports: [{port: 81}]",
		"ports: [{name: a, port: 80}, {name: b, port: 53, protocol: UDP, targetPort: dns}]",
		"type: NodePort, ports: [{port: 80}]", "type: NodePort, ports: [{name: a, port: 80}, {name: b, port: 81}]",
		"type: NodePort", "type: ClusterIP", "type: NodePort, externalTrafficPolicy: Local, ports: [{port: 80}]",
		"type: Other, ports: [{port: 80}]", // No history has a type that the simulation does not know.
		"type: NodePort, clusterIP: None, ports: [{port: 80}]", "type: ClusterIP, clusterIP: None, ports: [{port: 80}]",
		"ports: []", "ports: [{port: 80, protocol: SCTP}]", "ports: [{port: 80, appProtocol: http}]",
		"sessionAffinity: ClientIP, ports: [{port: 80}]", "internalTrafficPolicy: Local, ports: [{port: 80}]",
		"sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}, ports: [{port: 80}]",
		"sessionAffinity: None", "publishNotReadyAddresses: true, ports: [{port: 80}]",
		"selector: {app: 'a b'}, ports: [{port: 80}]", "selector: {app: demo, vm/rack: a}, ports: [{port: 80}]",
		"externalTrafficPolicy: Local, ports: [{port: 80}]", "clusterIP: 198.51.100.1", "clusterIP: '1'",
		"clusterIP: ''"),
	// No history needs the result of a change of families.
	creations: specs("ipFamilies: [IPv6], ports: [{port: 80}]", "ipFamilies: [IPv4], ports: [{port: 80}]",
		"clusterIP: None, ipFamilies: [IPv6]", "clusterIP: None, ipFamilies: [IPv4]",
		"ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]", "ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]",
		"clusterIP: None, selector: {app: demo}, ipFamilies: [IPv6]"),
	keepsContent: true,
}

// specs returns contents, each of which is a spec.
func specs(texts ...string) []string {
	for i, text := range texts {
		texts[i] = "spec: {" + text + "}"
	}
	return texts
}

const endpoint = "{addresses: [192.0.2.1], conditions: {ready: true}, nodeName: a, hostname: a}"

var endpointSlices = target[*discoveryv1.EndpointSlice]{
	kind: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
	client: func(s *side, namespace string) client[*discoveryv1.EndpointSlice] {
		return s.kube.DiscoveryV1().EndpointSlices(namespace)
	},
	verbs: []string{"create", "create", "update", "update", "update", "label", "delete", "get", "list"},
	names: []string{"a", "a", "b", "c.d", "A"},
	contents: []string{"addressType: IPv4, endpoints: [" + endpoint + "]",
		"addressType: IPv4, endpoints: [" + endpoint + "], ports: [{port: 80}]",
		"addressType: IPv4, endpoints: [], ports: [{name: http, port: 80, protocol: UDP}]",
		"addressType: IPv4, endpoints: [{addresses: [192.0.2.1, 192.0.2.2]}], ports: [{name: http, port: 80}]",
		"addressType: IPv4, endpoints: []", "addressType: IPv4, endpoints: [" + endpoint + ", " +
			"{addresses: [192.0.2.9], hostname: b, conditions: {ready: false, serving: true, terminating: true}}]"},
}

var leases = target[*coordinationv1.Lease]{
	kind: coordinationv1.SchemeGroupVersion.WithResource("leases"),
	client: func(s *side, namespace string) client[*coordinationv1.Lease] {
		return s.kube.CoordinationV1().Leases(namespace)
	},
	verbs: []string{"create", "update", "update", "update", "get", "delete"},
	names: []string{"a", "b"},
	contents: specs("", "holderIdentity: a, leaseDurationSeconds: 15, leaseTransitions: 1",
		"holderIdentity: b, leaseDurationSeconds: 15, leaseTransitions: 2, renewTime: '2026-01-01T00:00:00.000001Z'"),
}

var locals = target[*v1alpha1.LocalService]{
	kind: v1alpha1.SchemeGroupVersion.WithResource("localservices"),
	client: func(s *side, namespace string) client[*v1alpha1.LocalService] {
		return s.ours.LocalserviceV1alpha1().LocalServices(namespace)
	},
	verbs: allVerbs,
	names: []string{"a", "a", "a", "b", "1a"},
	// To the simulation, which has types of Go, what is 0 is the same as what is not there: none are written both ways.
	contents: append(specs(headless, "selector: {app: demo}, ports: [{port: 80, targetPort: 80}]",
		headless+", publishNotReadyAddresses: true",
		headless+", mode: Hostnames", headless+", mode: Hostnames, groupBy: rack", headless+", groupBy: rack",
		headless+", type: NodePort", "selector: {}, clusterIP: None", "selector: {app: demo}", "clusterIP: None",
		"selector: {app: demo}, ports: [{port: 80, targetPort: 80}], type: LoadBalancer, loadBalancerClass: a.b/c",
		"selector: {app: demo}, ports: [{port: 80}], type: Other", headless+", ports: [{port: 0}]",
		headless+", ports: [{port: 80}, {port: 81}]", headless+", ports: [{port: 80, nodePort: 30080}]",
		headless+", nodeSelector: {disk: ssd}", headless+", serviceMetadata: {labels: {owner: me}}",
		headless+", serviceMetadata: {labels: {team: a}, annotations: {note: b}}",
		headless+", ports: [{port: 1}, {port: 1}]",
	), "", "status: {nodes: 7}",
		"spec: {selector: {app: demo}, clusterIP: None}, status: {ready: 7/7, conditions: []}"),
}

// randomLocal is a request of a LocalService, or an update of its status as in internal/writer.
func randomLocal(p *pair) request {
	out := locals.random(p)
	if p.IntN(2) == 0 {
		return out
	}
	version, uid := pick(p, "no", "current", "current", "stale"), pick(p, "right", "right", "right", "right", "no",
		"wrong")
	status := v1alpha1.LocalServiceStatus{ObservedGeneration: int64(p.IntN(2)), Nodes: int32(p.IntN(2)), Services: 2,
		Ready: pick(p, "0/1", "1/1")}
	what := fmt.Sprint(status.ObservedGeneration, status.Nodes, status.Ready)
	for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionProgressing, v1alpha1.ConditionStalled} {
		if p.IntN(3) > 0 {
			c := metav1.Condition{Type: name, Status: pick(p, metav1.ConditionTrue, metav1.ConditionFalse),
				Reason: "Because", ObservedGeneration: 1,
				LastTransitionTime: metav1.Unix(1e9, 0)}
			status.Conditions = append(status.Conditions, c)
			what += fmt.Sprint(" ", name, c.Status)
		}
	}
	out.what = fmt.Sprintf("update status %s, %s resourceVersion, %s UID", what, version, uid)
	out.do = func(ctx context.Context, s *side, was known) (any, error) {
		object := &v1alpha1.LocalService{ObjectMeta: metav1.ObjectMeta{Namespace: out.namespace, Name: out.name,
			UID: uidOf(uid, was), ResourceVersion: versionOf(version, was)}, Status: status}
		return s.ours.LocalserviceV1alpha1().LocalServices(out.namespace).UpdateStatus(ctx, object,
			metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager, FieldValidation: metav1.FieldValidationStrict})
	}
	return out
}

var pods = target[*corev1.Pod]{
	kind: corev1.SchemeGroupVersion.WithResource("pods"),
	client: func(s *side, namespace string) client[*corev1.Pod] {
		return s.kube.CoreV1().Pods(namespace)
	},
	verbs:    []string{"label", "label", "label", "get", "list", "create"},
	names:    []string{"a", "a", "b"},
	contents: specs("nodeName: node, terminationGracePeriodSeconds: 0, containers: [{name: app, image: app}]"),
}

var replicaSets = target[*appsv1.ReplicaSet]{
	kind: appsv1.SchemeGroupVersion.WithResource("replicasets"),
	client: func(s *side, namespace string) client[*appsv1.ReplicaSet] {
		return s.kube.AppsV1().ReplicaSets(namespace)
	},
	verbs: []string{"create", "label", "get"},
	names: []string{"a", "a", "b"},
	contents: specs("selector: {matchLabels: {app: demo}}, template: {metadata: {labels: {app: demo}}, " +
		"spec: {containers: [{name: app, image: app}]}}"),
}

// pods makes requests of pods, which need a service account.
func (p *pair) pods() {
	p.scene.WaitServiceAccount()
	p.askAll(60, pods.random)
}

// quota fills a namespace with a quota of three Services.
func (p *pair) quota() {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "quota"}}
	quota.Spec.Hard = corev1.ResourceList{"count/services": resource.MustParse("3")}
	for _, s := range p.sides {
		_, err := s.kube.CoreV1().ResourceQuotas(p.namespace).Create(p.Context(), quota, metav1.CreateOptions{})
		p.scene.Must(err)
	}
	p.scene.Eventually("the quota is known", func(ctx context.Context) error {
		quota, err := p.scene.Kube.CoreV1().ResourceQuotas(p.namespace).Get(ctx, "quota", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			err = errors.New("it has no status")
		}
		return err
	})
	// Each has a name of its own: if a creation is counted and then refused because the name exists, the real API
	// server corrects its count only later.
	for i := range 20 {
		create := request{kind: "services", namespace: p.namespace, name: fmt.Sprint("s", i)}
		create.get = services.getter(create.namespace, create.name)
		services.create(p, &create, false)
		p.ask(create)
	}
}

// watches compares the Services that informers with a selector report. They begin with a streamed list of those that
// exist.
func (p *pair) watches() {
	seen := services
	seen.verbs, seen.names = []string{"create", "patch", "patch", "update", "delete"}, []string{"a", "b"}
	p.askAll(40, seen.random)
	var told [2]*recorder
	for i, s := range p.sides {
		told[i] = recordServices(p, s)
	}
	p.askAll(80, seen.random)
	last := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "last", Labels: map[string]string{"app": "demo"}}}
	last.Spec.ClusterIP = corev1.ClusterIPNone
	for _, s := range p.sides {
		_, err := s.kube.CoreV1().Services(p.namespace).Create(p.Context(), last, metav1.CreateOptions{})
		p.scene.Must(err)
	}
	p.scene.Eventually("both informers report the last Service", func(context.Context) error {
		for _, r := range told {
			if !slices.Contains(r.events(), "add last") {
				return fmt.Errorf("%v", r.events())
			}
		}
		return nil
	})
	if real, simulated := told[0].events(), told[1].events(); !slices.Equal(real, simulated) {
		p.Errorf("the informer reports %v, that of the simulation %v", real, simulated)
	}
}

// recorder records the events of an informer.
type recorder struct {
	mu  sync.Mutex
	all []string
}

func (r *recorder) tell(what string, object any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if gone, isGone := object.(cache.DeletedFinalStateUnknown); isGone {
		object = gone.Obj
	}
	r.all = append(r.all, what+" "+nameOf(object.(metav1.Object)))
}

// nameOf returns the name of an object, or its prefix if the rest was generated.
func nameOf(object metav1.Object) string {
	if prefix := object.GetGenerateName(); prefix != "" && strings.HasPrefix(object.GetName(), prefix) {
		return fmt.Sprint(prefix, len(object.GetName())-len(prefix), " letters")
	}
	return object.GetName()
}

func (r *recorder) events() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

func recordServices(p *pair, s *side) *recorder {
	factory := informers.NewSharedInformerFactoryWithOptions(s.kube, 0, informers.WithNamespace(p.namespace),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = "app=demo" }))
	out := &recorder{}
	informer := factory.Core().V1().Services().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { out.tell("add", object) },
		UpdateFunc: func(before, object any) {
			if !looksSame(before.(metav1.Object), object.(metav1.Object)) {
				out.tell("update", object)
			}
		},
		DeleteFunc: func(object any) { out.tell("delete", object) },
	})
	p.scene.Must(err)
	factory.Start(p.Context().Done())
	p.Cleanup(factory.Shutdown)
	if !cache.WaitForCacheSync(p.Context().Done(), informer.HasSynced) {
		p.Fatal("the informer does not begin")
	}
	return out
}
