package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestRefusedServices: Services that are refused do not keep the others from being made, nor are they forgotten.
func TestRefusedServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Bool
		f := newFixture(t, testLocalService(), testNode("node1"), testNode("node2"), testNode("node3"))
		c := f.newLocalServices()
		f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
			bad := a.(core.CreateAction).GetObject().(*corev1.Service).Name == "demo-node2"
			return bad && !over.Load(), nil, apierrors.NewInternalError(errors.New("no luck"))
		})
		f.watch()
		f.run(c.Run)
		writes := f.writes()
		f.expect("writes", []string{"create services demo-node1", "create services demo-node2",
			"create services demo-node3"}, slices.Compact(
			slices.DeleteFunc(slices.Clone(writes), func(w string) bool { return !strings.HasPrefix(w, "create") })))
		if got := writes[len(writes)-1]; got != "patch localservices/status demo 2/3 not Ready: WriteFailed, "+
			"Progressing" {
			t.Errorf("status %s", got)
		}
		if got := f.recorded(); !slices.ContainsFunc(got, func(e string) bool {
			return strings.Contains(e, "Warning WriteFailed 1 write failed: create Service "+
				"default/demo-node2") && strings.Contains(e, "no luck")
		}) || len(got) != 2 {
			t.Errorf("events %v, want one that says what was attempted, and why it failed", got)
		}
		over.Store(true)
		time.Sleep(10 * time.Minute)
		f.expect("writes when the trouble is "+
			"over", []string{"create services demo-node2", "patch localservices/status demo 3/3 " +
			"Ready"}, lastWrites(f.writes(), 2))
	})
}

func lastWrites(writes []string, n int) []string { return writes[max(0, len(writes)-n):] }

// TestRefusalsDoNotSpin: where a quota has room for some Services only, little is tried, however much happens to them
// meanwhile, and it is told once; also where the API server takes its time.
func TestRefusalsDoNotSpin(t *testing.T) {
	for name, slow := range map[string]time.Duration{"at once": 0, "slowly": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const quota, nodes = 5, 40
				f := newFixture(t, append(testNodes(nodes), testLocalService())...)
				f.deps.Options.WriteConcurrency = 1
				var refused, requests atomic.Int64
				var lifted atomic.Bool
				count := func(a core.Action) (bool, runtime.Object, error) {
					if refused.Load() > 0 && a.GetVerb() != "list" {
						requests.Add(1)
					}
					return false, nil, nil
				}
				f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
					if lifted.Load() || len(f.services()) < quota {
						return false, nil, nil
					}
					time.Sleep(slow)
					return true, nil, apierrors.NewForbidden(corev1.Resource("services"), "x",
						fmt.Errorf("exceeded quota: quota, requested: 1, used: %d", refused.Add(1)))
				})
				f.kube.PrependReactor("*", "*", count)
				f.client.PrependReactor("*", "*", count)
				f.runLocalServices()
				for i := range 570 { // After the 3 s in which it was to settle, these are the rest of the minute.
					time.Sleep(100 * time.Millisecond)
					for name, service := range f.services() {
						service.Annotations["beat"] = fmt.Sprint(i)
						f.set(service)
						f.set(testSlice(name, i%2 == 0))
						break
					}
				}
				t.Logf("%d requests in the first minute", requests.Load())
				events := strings.Join(f.recorded(), "\n")
				warnings := strings.Count(events, "Warning WriteFailed")
				if requests.Load() > 120 || refused.Load() < 6 || refused.Load() > 60 || warnings != 1 {
					t.Errorf("%d requests, %d refused, and %d warnings", requests.Load(), refused.Load(), warnings)
					t.Log(events)
				}
				lifted.Store(true)
				time.Sleep(4 * time.Minute)
				if got := len(f.services()); got != nodes {
					t.Errorf("%d Services when the quota is gone", got)
				}
			})
		})
	}
}

// TestMostRefused: the Services that a policy lets pass are created within minutes, however many others it refuses. When
// all have been tried, nothing more is reported.
func TestMostRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, accepted = 300, 30
		f := newFixture(t, append(testNodes(nodes), testLocalService())...)
		f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
			name := a.(core.CreateAction).GetObject().(*corev1.Service).Name
			cause := "a policy says no"
			if strings.HasSuffix(name, "1") {
				cause = "another one, too"
			}
			return !strings.HasSuffix(name, "0"), nil, apierrors.NewForbidden(corev1.Resource("services"), name,
				errors.New(cause))
		})
		f.runLocalServices()
		time.Sleep(15 * time.Minute)
		if got := len(f.services()); got != accepted {
			t.Errorf("%d Services after 15 minutes, want %d", got, accepted)
		}
		f.set(testNode("new0"))
		settle()
		if f.services()["demo-new0"] == nil {
			t.Error("the Service of a node that joins has to wait for those that are refused")
		}
		time.Sleep(20 * time.Minute)
		f.writes()
		f.recorded()
		time.Sleep(time.Hour)
		if writes := strings.Join(f.writes(), "\n"); strings.Contains(writes, "localservices/status") {
			t.Error("the status changes all the time")
		}
		f.expect("events", nil, f.recorded())
	})
}

// TestTerminatingNamespace: while the namespace is being deleted little is tried, not even when a node goes that has no
// Service, and nothing is told.
func TestTerminatingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, testNode("a", "disk=ssd"), testNode("b"), testLocalService(selectSSD))
		terminating := apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("terminating"))
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			return true, nil, terminating
		})
		f.runLocalServices()
		f.expect("writes", []string{"create services demo-a"}, f.writes())
		f.remove(testNode("b"))
		settle()
		f.expect("writes when another node is gone", nil, f.writes())
		f.set(testNode("c", "disk=ssd"))
		settle()
		if writes := f.writes(); len(writes) != 1 || !strings.HasPrefix(writes[0], "create services ") {
			t.Errorf("writes for another node: %v, want one, and no status", writes)
		}
		f.expect("events", nil, f.recorded())
	})
}

// TestReplacedWithFinalizers: where finalizers keep Services that are to be replaced, as those of load balancers do, no
// second one is deleted before the first has its successor.
func TestReplacedWithFinalizers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := append(testNodes(5), testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" }))
		for i := range 5 {
			objects = append(objects, testService(testLocalService(), fmt.Sprintf("node%02d", i)))
		}
		f := newFixture(t, objects...)
		f.kube.PrependReactor("delete", "services", func(a core.Action) (bool, runtime.Object, error) {
			object, err := f.kube.Tracker().Get(a.GetResource(), "default", a.(core.DeleteAction).GetName())
			if err != nil {
				return true, nil, err
			}
			s := object.(*corev1.Service).DeepCopy()
			s.DeletionTimestamp, s.ResourceVersion = new(metav1.Now()), f.nextVersion()
			return true, s, f.kube.Tracker().Update(a.GetResource(), s, "default")
		})
		f.runLocalServices()
		time.Sleep(10 * time.Minute)
		var going []*corev1.Service
		for _, s := range f.services() {
			if s.DeletionTimestamp != nil {
				going = append(going, s)
			}
		}
		if len(going) != 1 {
			t.Fatalf("%d Services are being deleted, want 1", len(going))
		}
		f.remove(going[0])
		time.Sleep(10 * time.Minute)
		if s := f.services()[going[0].Name]; s == nil || s.Spec.ClusterIP == corev1.ClusterIPNone {
			t.Errorf("the successor: %v", s)
		}
	})
}

// TestContestedFields: a field that somebody else sets costs one write more, is told, and is left alone for a while.
func TestContestedFields(t *testing.T) {
	balancer := func(ls *v1alpha1.LocalService) {
		ls.Spec.Type, ls.Spec.ClusterIP, ls.Spec.LoadBalancerClass = "LoadBalancer", "", new("ours")
	}
	affinity := func(s *corev1.Service) {
		s.Spec.SessionAffinity = "ClientIP"
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10800))}}
	}
	class := func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("theirs") }
	for name, c := range map[string]struct {
		spec    func(*v1alpha1.LocalService)
		admit   func(*corev1.Service)
		updates bool // whether admission changes updates, too
		nodes   int
		// writes of Services until it is told, and of the probe, which changes nothing; those after admission has ended
		writes, probes, ended int
	}{
		"at creation":               {func(*v1alpha1.LocalService) {}, affinity, false, 3, 3, 3, 0},
		"at creation and at update": {func(*v1alpha1.LocalService) {}, affinity, true, 3, 3, 1, 3},
		"immutable":                 {balancer, class, true, 3, 3, 0, 6},
		"the controller reference": {func(*v1alpha1.LocalService) {},
			func(s *corev1.Service) { s.OwnerReferences = nil }, true, 3, 3, 3, 3},
		"the node": {func(*v1alpha1.LocalService) {},
			func(s *corev1.Service) { delete(s.Annotations, v1alpha1.NodeAnnotationKey) }, true, 3, 3, 1, 3},
		"immutable, and as it is": {func(ls *v1alpha1.LocalService) {
			balancer(ls)
			ls.Spec.LoadBalancerClass = nil
		}, class, true, 3, 3, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, append(testNodes(c.nodes), testLocalService(c.spec))...)
				var ended atomic.Bool
				admit := func(a core.Action) (bool, runtime.Object, error) {
					react := f.createService
					if a.GetVerb() == "patch" {
						react = f.patchService
					}
					handled, object, err := react(a)
					if err == nil && !ended.Load() && (a.GetVerb() == "create" || c.updates) {
						service := object.(*corev1.Service)
						if c.admit(service); service.ResourceVersion != "" {
							err = f.kube.Tracker().Update(a.GetResource(), service, service.Namespace)
						}
					}
					return handled, object, err
				}
				f.kube.PrependReactor("create", "services", admit)
				f.kube.PrependReactor("patch", "services", admit)
				f.runLocalServices()
				expect := func(when string, writes int) {
					t.Helper()
					got := 0
					told := f.writes()
					for _, w := range told {
						if strings.Contains(w, " services ") {
							got++
						}
					}
					if got != writes {
						t.Errorf("%d writes of Services %s, want %d: %v", got, when, writes, told)
					}
				}
				expect("until it is told", c.writes)
				is := c.probes+c.ended > 0
				if (strings.Count(fmt.Sprint(f.recorded()), "Warning Contested") == 1) != is {
					t.Errorf("told: %t", !is)
				}
				time.Sleep(writer.ContestedFor - time.Minute)
				expect("while it is left", 0)
				time.Sleep(2 * time.Minute)
				expect("to see whether it still is", c.probes)
				ended.Store(true)
				time.Sleep(writer.ContestedFor)
				expect("after it has ended", c.ended)
				f.recorded()
				ended.Store(false)
				f.set(testLocalService(c.spec, func(ls *v1alpha1.LocalService) {
					ls.Generation, ls.Spec.PublishNotReadyAddresses = 2, true
				}))
				settle()
				if got := len(f.writes()); got == 0 {
					t.Error("nothing is written when the spec has changed")
				}
			})
		})
	}
}

// refuseUntil has the API server refuse writes of a resource until the test says otherwise.
func refuseUntil(f *fixture, verb, resource string) *atomic.Bool {
	var over atomic.Bool
	f.kube.PrependReactor(verb, resource, func(a core.Action) (bool, runtime.Object, error) {
		return !over.Load(), nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "x", errors.New("quota"))
	})
	return &over
}
