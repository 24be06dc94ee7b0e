package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	// seedWorkers is how many transactions are under way, seedBatch how many objects each holds: etcd takes no more.
	seedWorkers = 4
	seedBatch   = 128
	// seededKey is an annotation and a label; see learn.
	seededKey = "bench/seeded"
)

// storageCodec encodes objects as the API server stores them.
var storageCodec = scheme.Codecs.EncoderForVersion(
	protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)

// seed puts n objects into etcd, past the API server, which learns of them through its watch: ten times as fast, and
// the result is the same, because the objects are copies of one that the API server has made.
func (c *cluster) seed(ctx context.Context, n int, object func(i int) (key string, obj runtime.Object)) {
	batches := (n + seedBatch - 1) / seedBatch
	must(parallel(ctx, seedWorkers, batches, func(ctx context.Context, _, batch int) error {
		var puts []clientv3.Op
		for i := batch * seedBatch; i < min(n, (batch+1)*seedBatch); i++ {
			key, obj := object(i)
			value, err := runtime.Encode(storageCodec, obj)
			if err != nil {
				return fmt.Errorf("encode %s for etcd: %w", key, err)
			}
			puts = append(puts, clientv3.OpPut("/registry/"+key, string(value)))
		}
		_, err := c.etcd.Txn(ctx).Then(puts...).Commit()
		return err
	}))
}

// anew makes a copy of an object another one.
func anew(meta *metav1.ObjectMeta, name string) {
	meta.Name, meta.UID, meta.ResourceVersion = name, uuid.NewUUID(), ""
}

// learn waits until the API server knows all objects of a resource that have been put into etcd, of which sample is
// one. Those of a transaction have one resource version, so that a watch that begins in between misses some. Behind
// them comes a change of the sample, and the list is as new as that. It must not come from etcd, which takes too long.
func (s *scene) learn(ctx context.Context, resource, sample string) {
	client, namespaced := s.Kube.CoreV1().RESTClient(), resource != "nodes"
	changed := try(client.Patch(types.MergePatchType).NamespaceIfScoped(s.name, namespaced).Resource(resource).
		Name(sample).Body([]byte(`{"metadata":{"annotations":{"` + seededKey + `":"true"}}}`)).Do(ctx).Get())
	version := try(meta.Accessor(changed)).GetResourceVersion()
	must(framework.Poll(ctx, func(ctx context.Context) error {
		return client.Get().NamespaceIfScoped(s.name, namespaced).Resource(resource).
			Param("resourceVersion", version).Param("resourceVersionMatch", "NotOlderThan").
			Param("labelSelector", seededKey).Do(ctx).Error()
	}))
}

// podState is how far pods have come.
type podState int

const (
	podPending  podState = iota // not scheduled
	podRunning                  // running on a node, without the node label
	podLabelled                 // running, with the node label
)

// newApp is a name for a group of pods that no other has.
func (s *scene) newApp() string {
	s.apps++
	return fmt.Sprintf("pods%d", s.apps)
}

// seedPods puts pods of an app in place. Those that run are on the scene's nodes, one after the other.
func (s *scene) seedPods(ctx context.Context, app string, n int, state podState) []*corev1.Pod {
	prefix := s.newApp()
	sample := try(s.Kube.CoreV1().Pods(s.name).Create(ctx, newPod(app, prefix+"-sample"), metav1.CreateOptions{}))
	first, pods := s.pods, make([]*corev1.Pod, n)
	s.pods += n
	s.seed(ctx, n, func(i int) (string, runtime.Object) {
		pod := sample.DeepCopy()
		anew(&pod.ObjectMeta, fmt.Sprintf("%s-%06d", prefix, i))
		if state != podPending {
			start(pod, s.nodes[i%len(s.nodes)], podAddress(first+i))
		}
		if state == podLabelled {
			pod.Labels[v1alpha1.DefaultNodeLabelKey] = pod.Spec.NodeName
		}
		pods[i] = pod
		return "pods/" + s.name + "/" + pod.Name, pod
	})
	s.learn(ctx, "pods", sample.Name)
	return pods
}

// newPod is a pod that is not scheduled, with the labels that pods of a Deployment have.
func newPod(app, name string) *corev1.Pod {
	return framework.NewPod(name, "", map[string]string{
		"app": app, "app.kubernetes.io/name": app, "app.kubernetes.io/managed-by": "Helm", "pod-template-hash": "5d78",
	}, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
		}
	})
}

// podAddress is the IP address of the i-th pod that is put in place.
func podAddress(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff) }

// start makes a pod look as if it ran on a node.
func start(pod *corev1.Pod, node, address string) {
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodRunning
	pod.Status.HostIP, pod.Status.PodIP, pod.Status.PodIPs = "192.0.2.1", address, []corev1.PodIP{{IP: address}}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp,
		})
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", Image: "app", Ready: true, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}},
	}}
}

// parallel calls do for every i below n, from so many workers. After an error, no more are begun.
func parallel(ctx context.Context, workers, n int, do func(ctx context.Context, worker, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for worker := range min(workers, n) {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := do(ctx, worker, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// paced is parallel at an even pace, of so many a second.
func paced(ctx context.Context, workers, n int, perSecond float64, do func(ctx context.Context, i int) error) error {
	began := time.Now()
	return parallel(ctx, workers, n, func(ctx context.Context, _, i int) error {
		due := began.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		return do(ctx, i)
	})
}

// pause waits for a time of measuring to pass.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
