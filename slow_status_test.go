package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	apply "github.com/localservice-dev/local-service-controller/pkg/generated/applyconfiguration/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
	typed "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned/typed/localservice/v1alpha1"
)

// slowStatuses is a client whose status writes take their time, as those do that a webhook does not answer about. A
// reactor of the fake clientset would hold up all requests.
type slowStatuses struct {
	clientset.Interface
	typed.LocalserviceV1alpha1Interface
	typed.LocalServiceInterface
	namespace string
	// take returns how long a write takes in a namespace, and its error.
	take func(namespace string) (time.Duration, error)
}

func (s slowStatuses) LocalserviceV1alpha1() typed.LocalserviceV1alpha1Interface {
	s.LocalserviceV1alpha1Interface = s.Interface.LocalserviceV1alpha1()
	return s
}

func (s slowStatuses) LocalServices(namespace string) typed.LocalServiceInterface {
	s.LocalServiceInterface = s.LocalserviceV1alpha1Interface.LocalServices(namespace)
	s.namespace = namespace
	return s
}

func (s slowStatuses) ApplyStatus(ctx context.Context, ls *apply.LocalServiceApplyConfiguration,
	opts metav1.ApplyOptions) (*v1alpha1.LocalService, error) {
	duration, err := s.take(s.namespace)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(duration):
	}
	if err != nil {
		return nil, err
	}
	return s.LocalServiceInterface.ApplyStatus(ctx, ls, opts)
}

// slowServices is a client that calls a function while it creates or deletes a Service, or nil. creating, which is told
// of trials, too, comes before that takes place, and created between that and the answer.
type slowServices struct {
	kubernetes.Interface
	typedcorev1.CoreV1Interface
	typedcorev1.ServiceInterface
	creating func(service *corev1.Service, isTrial bool)
	created  func(*corev1.Service)
	deleting func(name string)
}

func (s slowServices) CoreV1() typedcorev1.CoreV1Interface {
	s.CoreV1Interface = s.Interface.CoreV1()
	return s
}

func (s slowServices) Services(namespace string) typedcorev1.ServiceInterface {
	s.ServiceInterface = s.CoreV1Interface.Services(namespace)
	return s
}

func (s slowServices) Create(ctx context.Context, service *corev1.Service,
	opts metav1.CreateOptions) (*corev1.Service, error) {
	isTrial := len(opts.DryRun) > 0
	if s.creating != nil {
		s.creating(service, isTrial)
	}
	created, err := s.ServiceInterface.Create(ctx, service, opts)
	if s.created != nil && err == nil && !isTrial {
		s.created(created)
	}
	return created, err
}

func (s slowServices) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if s.deleting != nil {
		s.deleting(name)
	}
	return s.ServiceInterface.Delete(ctx, name, opts)
}

// startSlow has the controller work with status writes that take their time, until stop is called.
func (f *fixture) startSlow(take func(namespace string) (time.Duration, error)) (stop func()) {
	f.t.Helper()
	f.deps.Client = slowStatuses{Interface: f.client, take: take}
	return f.startLocalServices(100)
}

func named(namespace, name string) func(*v1alpha1.LocalService) {
	return func(ls *v1alpha1.LocalService) {
		ls.Namespace, ls.Name, ls.UID = namespace, name, types.UID("uid-"+namespace+"-"+name)
	}
}

// TestHangingStatuses: statuses that hang in two namespaces, where a webhook does not answer, hold up neither the
// Services nor the statuses of another one.
func TestHangingStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("node1"), testLocalService(named("a", "one")), testLocalService(named("a", "two")),
			testLocalService(named("b", "one")), testLocalService(named("b", "two")))
		f.startSlow(func(namespace string) (time.Duration, error) {
			if namespace == "default" {
				return 5 * time.Millisecond, nil
			}
			return 29 * time.Second, apierrors.NewInternalError(errors.New("the webhook does not answer"))
		})
		time.Sleep(time.Second)
		f.set(testLocalService())
		time.Sleep(5 * time.Second) // Its first status has been written, and the next one need not wait for that.
		for i := range 5 {
			f.set(testNode(fmt.Sprintf("node%d", i+2)))
			time.Sleep(2 * time.Second)
			_, err := f.kube.Tracker().Get(corev1.SchemeGroupVersion.WithResource("services"), "default",
				fmt.Sprintf("demo-node%d", i+2))
			ls, lsErr := f.client.Tracker().Get(v1alpha1.SchemeGroupVersion.WithResource("localservices"), "default", "demo")
			if err != nil || lsErr != nil {
				t.Fatal("2 s after a node has joined:", errors.Join(err, lsErr))
			}
			if got := ls.(*v1alpha1.LocalService).Status.Services; got != int32(i)+2 {
				t.Errorf("2 s after a node has joined: the status tells of %d Services, want %d", got, i+2)
			}
			time.Sleep(20 * time.Second)
		}
	})
}

// TestRemovedWhileUnderWay: a Service that is to be replaced, or deleted, stays if the LocalService has changed, or the
// instance is to stop, while the API server was asked whether that may be.
func TestRemovedWhileUnderWay(t *testing.T) {
	former := testLocalService()
	changed := testLocalService(func(ls *v1alpha1.LocalService) { ls.Generation, ls.Spec.ClusterIP = 2, "" })
	for name, change := range map[string]func(f *fixture, stop func()){
		"corrected": func(f *fixture, _ func()) {
			f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.Generation = 3 }))
		},
		"stopped": func(_ *fixture, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, testNode("node1"), changed, testService(former, "node1"))
				trial := make(chan struct{}, 10)
				f.deps.Kube = slowServices{Interface: f.kube,
					creating: func(_ *corev1.Service, isTrial bool) {
						if isTrial {
							trial <- struct{}{}
							time.Sleep(10 * time.Second)
						}
					},
					deleting: func(name string) { t.Errorf("%s, which serves, is deleted", name) }}
				stop := f.startLocalServices(4)
				<-trial
				change(f, stop)
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

// TestEventsOfAStop: what statuses warn of is recorded when they are written, and not by an instance that does not come
// to write them, too.
func TestEventsOfAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conflicts = 20
		objects := []runtime.Object{testNode("node1")}
		for i := range conflicts {
			ls := testLocalService(named("default", fmt.Sprintf("demo%d", i)))
			taken := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: ls.Name + "-node1", UID: "x"}}
			objects = append(objects, ls, taken)
		}
		f := newFixture(t, objects...)
		slow := func(string) (time.Duration, error) { return 5 * time.Second, nil }
		stop := f.startSlow(slow)
		time.Sleep(100 * time.Millisecond)
		stop()
		first := len(f.recorded())
		f.deps.Caches = f.newCaches(false)
		f.startSlow(slow)
		time.Sleep(10 * time.Minute)
		if second := len(f.recorded()); first+second != conflicts || first == 0 {
			t.Errorf("%d events, and %d of the next instance, of %d conflicts", first, second, conflicts)
		}
	})
}
