package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	fieldManager = v1alpha1.FieldManager
	// sceneLabelKey on a node tells the scene that it belongs to, so that several fit into one cluster.
	sceneLabelKey = "bench/scene"
	loadWorkers   = 8
)

// scene is a namespace, nodes of its own, and what is in it.
type scene struct {
	*cluster
	name  string
	nodes []string
	apps  int // groups of pods so far
}

// newScene makes a namespace and nodes.
func (b *bench) newScene(ctx context.Context, c *cluster, nodes int) (*scene, error) {
	b.scenes++
	s := &scene{cluster: c, name: fmt.Sprintf("scene%d", b.scenes)}
	if err := c.createNamespace(ctx, s.name); err != nil {
		return nil, err
	}
	if nodes == 0 {
		return s, nil
	}
	sample, err := s.addNode(ctx)
	if err != nil {
		return nil, err
	}
	for i := 1; i < nodes; i++ {
		s.nodes = append(s.nodes, s.nodeName(i))
	}
	err = c.seed(ctx, nodes-1, func(i int) (string, runtime.Object) {
		node := sample.DeepCopy()
		node.Name = s.nodes[i+1]
		node.Labels[corev1.LabelHostname] = node.Name
		anew(&node.ObjectMeta)
		return "minions/" + node.Name, node
	})
	if err != nil {
		return nil, fmt.Errorf("load nodes: %w", err)
	}
	return s, s.learn(ctx, "nodes", sample.Name)
}

func (s *scene) nodeName(i int) string { return fmt.Sprintf("%s-node-%05d", s.name, i) }

// anew makes a copy of an object another one.
func anew(meta *metav1.ObjectMeta) {
	meta.UID, meta.ResourceVersion = uuid.NewUUID(), ""
}

// addNode adds a node as a kubelet does, with the labels and conditions that real ones have.
func (s *scene) addNode(ctx context.Context) (*corev1.Node, error) {
	name := s.nodeName(len(s.nodes))
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				sceneLabelKey: s.name, corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
				corev1.LabelTopologyZone: "zone-a", corev1.LabelTopologyRegion: "region-1", corev1.LabelInstanceTypeStable: "standard-4",
			},
			Annotations: map[string]string{"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Status: corev1.NodeStatus{
			Capacity:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")},
			Conditions: nodeConditions(time.Now()),
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
	created, err := s.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{FieldManager: "kubelet"})
	if err != nil {
		return nil, fmt.Errorf("create node %s: %w", name, err)
	}
	s.nodes = append(s.nodes, name)
	return created, nil
}

func nodeConditions(now time.Time) []corev1.NodeCondition {
	var conditions []corev1.NodeCondition
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeReady} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		conditions = append(conditions, corev1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: metav1.NewTime(now), Reason: "Kubelet", Message: "the kubelet says so"})
	}
	return conditions
}

// localService is a headless LocalService for the nodes of the scene, not created yet.
func (s *scene) localService(name string) *v1alpha1.LocalService {
	return &v1alpha1.LocalService{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name},
		Spec: v1alpha1.LocalServiceSpec{
			ClusterIP:    corev1.ClusterIPNone,
			Selector:     map[string]string{"app": name},
			Ports:        []v1alpha1.ServicePort{{Name: "http", Port: 8080}},
			NodeSelector: map[string]string{sceneLabelKey: s.name},
		},
	}
}

// createLocalServices creates LocalServices with these names, several at a time.
func (s *scene) createLocalServices(ctx context.Context, wanted []*v1alpha1.LocalService) ([]*v1alpha1.LocalService, error) {
	created := make([]*v1alpha1.LocalService, len(wanted))
	err := parallel(ctx, loadWorkers, len(wanted), func(ctx context.Context, _, i int) (err error) {
		created[i], err = s.localServices.LocalserviceV1alpha1().LocalServices(wanted[i].Namespace).Create(ctx, wanted[i], metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create LocalService %s: %w", wanted[i].Name, err)
		}
		return nil
	})
	return created, err
}

// namedLocalServices are n LocalServices that are not created yet.
func (s *scene) namedLocalServices(prefix string, n int) []*v1alpha1.LocalService {
	var all []*v1alpha1.LocalService
	for i := range n {
		all = append(all, s.localService(fmt.Sprintf("%s%03d", prefix, i)))
	}
	return all
}

// services are the Services that the controller makes for LocalServices, not created yet.
func (s *scene) services(owners []*v1alpha1.LocalService) ([]*corev1.Service, error) {
	var services []*corev1.Service
	for _, owner := range owners {
		template, err := plan.NewTemplate(owner, v1alpha1.DefaultNodeLabelKey)
		if err != nil {
			return nil, fmt.Errorf("make the Services of LocalService %s: %w", owner.Name, err)
		}
		for _, node := range s.nodes {
			services = append(services, template.Service(node))
		}
	}
	return services, nil
}

// seedServices puts the Services of LocalServices in place.
func (s *scene) seedServices(ctx context.Context, owners []*v1alpha1.LocalService) error {
	services, err := s.services(owners)
	if err != nil {
		return err
	}
	sample, err := s.kube.CoreV1().Services(s.name).Create(ctx, services[0], metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("create Service %s: %w", services[0].Name, err)
	}
	services = services[1:]
	err = s.seed(ctx, len(services), func(i int) (string, runtime.Object) {
		service, wanted := sample.DeepCopy(), services[i]
		service.Name, service.Labels, service.Annotations, service.OwnerReferences = wanted.Name, wanted.Labels, wanted.Annotations, wanted.OwnerReferences
		service.Spec.Selector = wanted.Spec.Selector
		anew(&service.ObjectMeta)
		return "services/specs/" + s.name + "/" + service.Name, service
	})
	if err != nil {
		return fmt.Errorf("load Services: %w", err)
	}
	return s.learn(ctx, "services", sample.Name)
}

const seededKey = "bench/seeded"

// learn waits until the API server knows all objects of a resource that have been put into etcd, of which sample is one. A
// transaction's have one resource version, so that a watch that begins in between misses some. Behind them comes a change
// of the sample, and the list is as new as that.
func (s *scene) learn(ctx context.Context, resource, sample string) error {
	client := s.kube.CoreV1().RESTClient()
	patch := client.Patch(types.MergePatchType).NamespaceIfScoped(s.name, resource != "nodes").Resource(resource).Name(sample).
		Body([]byte(`{"metadata":{"annotations":{"` + seededKey + `":"true"}}}`))
	list := client.Get().NamespaceIfScoped(s.name, resource != "nodes").Resource(resource).Param("labelSelector", seededKey)
	for _, request := range []*rest.Request{patch, list} {
		if err := request.Do(ctx).Error(); err != nil {
			return fmt.Errorf("wait until the API server knows all %s: %w", resource, err)
		}
	}
	return nil
}

// podRef is what patching a pod needs.
type podRef struct {
	namespace, name, node string
	uid                   types.UID
}

// labelPatch is the patch with which the controller labels a pod.
func (p *podRef) labelPatch() []byte {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":    p.uid,
		"labels": map[string]string{v1alpha1.DefaultNodeLabelKey: p.node},
	}})
	if err != nil {
		panic(err) // It is made of strings.
	}
	return patch
}

// podState is how far pods have come.
type podState int

const (
	podPending  podState = iota // not scheduled
	podRunning                  // running on a node, without the node label
	podLabelled                 // running, with the node label
)

// seedPods puts running pods of an app on the scene's nodes, one after the other.
func (s *scene) seedPods(ctx context.Context, app, prefix string, n int, state podState) ([]podRef, error) {
	sample, err := s.createPod(ctx, app, prefix+"-sample")
	if err != nil {
		return nil, err
	}
	refs := make([]podRef, n)
	err = s.seed(ctx, n, func(i int) (string, runtime.Object) {
		pod := sample.DeepCopy()
		pod.Name = fmt.Sprintf("%s-%06d", prefix, i)
		anew(&pod.ObjectMeta)
		if state != podPending {
			s.run(pod, s.nodes[i%len(s.nodes)])
		}
		if state == podLabelled {
			pod.Labels[v1alpha1.DefaultNodeLabelKey] = pod.Spec.NodeName
		}
		refs[i] = podRef{s.name, pod.Name, pod.Spec.NodeName, pod.UID}
		return "pods/" + s.name + "/" + pod.Name, pod
	})
	if err != nil {
		return nil, fmt.Errorf("load pods: %w", err)
	}
	return refs, s.learn(ctx, "pods", sample.Name)
}

// createPod creates a pod that is not scheduled, with the labels that pods of a Deployment have.
func (s *scene) createPod(ctx context.Context, app, name string) (*corev1.Pod, error) {
	pod, err := s.kube.CoreV1().Pods(s.name).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "5d78c9869d",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "registry.example/team/app:v1.2.3",
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			Env:   []corev1.EnvVar{{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
			}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create pod %s/%s: %w", s.name, name, err)
	}
	return pod, nil
}

// run makes a pod look as if it ran on a node.
func (s *scene) run(pod *corev1.Pod, node string) {
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodRunning
	pod.Status.HostIP, pod.Status.PodIP = "192.0.2.1", "198.51.100.1"
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp})
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", Image: "registry.example/team/app:v1.2.3", Ready: true, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}},
	}}
}
