package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	// auditLogMegabytes keeps the API server from rotating its audit log: every request must be found in it.
	auditLogMegabytes = "16384"
	loadWorkers       = 8
)

// cluster is a control plane, and the etcd behind it.
type cluster struct {
	*framework.Cluster
	etcd *clientv3.Client
}

// withScene calls use with a namespace and nodes on a new control plane, and stops that afterwards. A smoke run has
// only one control plane, for all rows.
func (b *bench) withScene(ctx context.Context, nodes int, use func(s *scene)) {
	if b.opts.smoke {
		if b.shared == nil {
			b.shared = b.startCluster(ctx)
		}
		use(b.newScene(ctx, b.shared, nodes))
		return
	}
	c := b.startCluster(ctx)
	defer func() { b.note(c.Stop()) }()
	use(b.newScene(ctx, c, nodes))
}

func (b *bench) startCluster(ctx context.Context) *cluster {
	options := framework.ClusterOptions{ControlPlaneOnly: true, Hostnames: true,
		Args: []string{"--controllers", b.opts.kubeControllers,
			"--apiserver-flag=--audit-log-maxsize=" + auditLogMegabytes}}
	c := &cluster{Cluster: try(framework.StartCluster(ctx, options))}
	etcd := clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(c.Dir(), "etcd.sock")}, Logger: zap.NewNop()}
	c.etcd = try(clientv3.New(etcd))
	return c
}

// Stop ends the control plane.
func (c *cluster) Stop() error { return errors.Join(c.etcd.Close(), c.Cluster.Stop()) }

// protobuf is a configuration for clients like the controller's own.
func (c *cluster) protobuf(agent string) *rest.Config {
	config := rest.CopyConfig(c.Config)
	config.UserAgent, config.ContentType = agent, runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// scene is a namespace on a control plane, with nodes of its own.
type scene struct {
	*bench
	*cluster
	name  string
	nodes []string
	apps  int // groups of pods so far
	pods  int // put in place so far
	// address is where bare clients and the controller find the API server, "" for its own.
	address string
}

// newScene makes a namespace, in which pods can be created, and nodes.
func (b *bench) newScene(ctx context.Context, c *cluster, nodes int) *scene {
	b.scenes++
	s := &scene{bench: b, cluster: c, name: fmt.Sprintf("scene%d", b.scenes)}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	try(s.Kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}))
	must(framework.Poll(ctx, func(ctx context.Context) error {
		_, err := s.Kube.CoreV1().ServiceAccounts(s.name).Get(ctx, "default", metav1.GetOptions{})
		return err
	}))
	sample := s.addNode(ctx)
	// As the controller that would do it does not run, it is never found ready.
	sample.Spec.Taints = nil
	sample = try(s.Kube.CoreV1().Nodes().Update(ctx, sample, metav1.UpdateOptions{}))
	for i := 1; i < nodes; i++ {
		s.nodes = append(s.nodes, s.nodeName(i))
	}
	c.seed(ctx, nodes-1, func(i int) (string, runtime.Object) {
		node := sample.DeepCopy()
		anew(&node.ObjectMeta, s.nodes[i+1])
		node.Labels[corev1.LabelHostname] = node.Name
		return "minions/" + node.Name, node
	})
	s.learn(ctx, "nodes", sample.Name)
	return s
}

// leave deletes what would give the controller work.
func (s *scene) leave(ctx context.Context) {
	localServices, options := s.LocalServices.LocalserviceV1alpha1().LocalServices(s.name), metav1.DeleteOptions{}
	must(localServices.DeleteCollection(ctx, options, metav1.ListOptions{}))
	own := metav1.ListOptions{LabelSelector: framework.SceneLabel + "=" + s.name}
	must(s.Kube.CoreV1().Nodes().DeleteCollection(ctx, options, own))
}

// empty takes the LocalServices, Services and pods of the scene from etcd.
func (s *scene) empty(ctx context.Context) {
	for _, resource := range []string{"localservice.dev/localservices", "services/specs", "pods"} {
		try(s.etcd.Delete(ctx, "/registry/"+resource+"/"+s.name+"/", clientv3.WithPrefix()))
	}
}

func (s *scene) nodeName(i int) string { return fmt.Sprintf("%s-node-%05d", s.name, i) }

// addNode adds a node as a kubelet does, with the labels and conditions that real ones have.
func (s *scene) addNode(ctx context.Context) *corev1.Node {
	name := s.nodeName(len(s.nodes))
	node := framework.NewNode(name, map[string]string{
		framework.SceneLabel: s.name, corev1.LabelHostname: name, corev1.LabelOSStable: "linux",
		corev1.LabelArchStable: "amd64", corev1.LabelInstanceTypeStable: "standard-4",
		corev1.LabelTopologyZone: "zone-a", corev1.LabelTopologyRegion: "region-1",
	})
	node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
	node.Status.Conditions = nodeConditions(time.Now())
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.37.2", OperatingSystem: "linux"}
	s.nodes = append(s.nodes, name)
	return try(s.Kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}))
}

// nodeConditions are the conditions that a kubelet reports when all is well.
func nodeConditions(now time.Time) []corev1.NodeCondition {
	at := metav1.NewTime(now)
	return []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, LastHeartbeatTime: at},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, LastHeartbeatTime: at},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, LastHeartbeatTime: at},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: at},
	}
}

// localService is a headless LocalService for the nodes of the scene that have a label, not created yet.
func (s *scene) localService(name, nodeLabel, value string) *v1alpha1.LocalService {
	return framework.NewLocalService(s.name, name, func(ls *v1alpha1.LocalService) {
		ls.Spec.NodeSelector = map[string]string{nodeLabel: value}
	})
}

// create creates a LocalService.
func (s *scene) create(ctx context.Context, ls *v1alpha1.LocalService) (*v1alpha1.LocalService, error) {
	return s.LocalServices.LocalserviceV1alpha1().LocalServices(s.name).Create(ctx, ls, metav1.CreateOptions{})
}

// createLocalServices creates n LocalServices for the nodes of the scene, several at a time, with some changes.
func (s *scene) createLocalServices(ctx context.Context, prefix string, n int,
	changes ...framework.Change) []*v1alpha1.LocalService {
	created := make([]*v1alpha1.LocalService, n)
	must(parallel(ctx, loadWorkers, n, func(ctx context.Context, _, i int) (err error) {
		ls := s.localService(fmt.Sprintf("%s%03d", prefix, i), framework.SceneLabel, s.name)
		for _, change := range changes {
			change(ls)
		}
		created[i], err = s.create(ctx, ls)
		return err
	}))
	return created
}

// seedLocalServices creates n LocalServices, and puts their Services in place.
func (s *scene) seedLocalServices(ctx context.Context, n int) {
	template, owners := s.templateService(ctx), s.createLocalServices(ctx, "app", n)
	first := template.copyFor(owners[0], s.nodes[0])
	sample := try(s.Kube.CoreV1().Services(s.name).Create(ctx, first, createOptions))
	stored := &serviceTemplate{sample, owners[0].Name, s.nodes[0]}
	s.seed(ctx, n*len(s.nodes)-1, func(i int) (string, runtime.Object) {
		service := stored.copyFor(owners[(i+1)/len(s.nodes)], s.nodes[(i+1)%len(s.nodes)])
		anew(&service.ObjectMeta, service.Name)
		return "services/specs/" + s.name + "/" + service.Name, service
	})
	s.learn(ctx, "services", sample.Name)
}

// awaitReady waits until the status of every LocalService says that all is in place, which a busy machine may write
// long after the controller is ready, and then until the controller has sent no request for a while.
func (s *scene) awaitReady(ctx context.Context, quiet time.Duration) {
	must(framework.Poll(ctx, func(ctx context.Context) error {
		list, err := s.LocalServices.LocalserviceV1alpha1().LocalServices(s.name).List(ctx, metav1.ListOptions{})
		for i := 0; err == nil && i < len(list.Items); i++ {
			err = framework.CheckCondition(&list.Items[i], v1alpha1.ConditionReady, metav1.ConditionTrue, "")
		}
		return err
	}))
	s.awaitRest(ctx, quiet)
}
