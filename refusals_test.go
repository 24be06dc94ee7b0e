package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/writer"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// services are the Services that there are, by name.
func (f *fixture) services() map[string]*corev1.Service {
	f.t.Helper()
	// Not by a request, which a reactor cannot make.
	list, err := f.kube.Tracker().List(corev1.SchemeGroupVersion.WithResource("services"),
		corev1.SchemeGroupVersion.WithKind("Service"), "default")
	if err != nil {
		f.t.Fatal(err)
	}
	found := map[string]*corev1.Service{}
	for _, s := range list.(*corev1.ServiceList).Items {
		found[s.Name] = &s
	}
	return found
}

// TestDeletionAsksTheAPIServer: a Service is deleted when the API server says that nothing wants it, and not when only
// caches say so, which may be behind: here no watch tells anything.
func TestDeletionAsksTheAPIServer(t *testing.T) {
	const deleted, stale, refused = "", "WritingServices", "WriteFailed"
	onDelete := func(f *fixture, err error) {
		f.kube.PrependReactor("delete", "services", func(core.Action) (bool, runtime.Object, error) {
			return true, nil, err
		})
	}
	for name, c := range map[string]struct {
		event func(f *fixture)
		want  string
	}{
		"the node is gone":                 {func(*fixture) {}, deleted},
		"the node is there":                {func(f *fixture) { f.set(testNode("node1", "disk=ssd")) }, stale},
		"the node is not selected":         {func(f *fixture) { f.set(testNode("node1")) }, deleted},
		"another node's label is the same": {func(f *fixture) { f.set(testNode("NODE1", "disk=ssd")) }, deleted},
		"the node cannot be read": {func(f *fixture) {
			f.nodes.PrependReactor("get", "nodes", func(core.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "node1", errors.New("no"))
			})
		}, refused},
		"the LocalService has changed": {func(f *fixture) {
			f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.Generation = 2 }))
		}, stale},
		"the Service has changed": {func(f *fixture) {
			onDelete(f, apierrors.NewConflict(corev1.Resource("services"), "demo-node1", errors.New("changed")))
		}, stale},
		"the Service is gone": {func(f *fixture) {
			onDelete(f, apierrors.NewNotFound(corev1.Resource("services"), "demo-node1"))
			f.remove(testService(testLocalService(), "node1"))
		}, deleted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ls := testLocalService(inPlace(1), func(ls *v1alpha1.LocalService) {
					ls.Spec.NodeSelector = map[string]string{"disk": "ssd"}
				})
				f := newFixture(t, ls, testService(ls, "node1"), testNode("other", "disk=ssd"),
					testService(ls, "other"))
				for _, fake := range []*core.Fake{&f.kube.Fake, &f.nodes.Fake, &f.client.Fake} {
					fake.PrependWatchReactor("*", func(core.Action) (bool, watch.Interface, error) {
						return true, watch.NewFake(), nil
					})
				}
				controller := f.newLocalServices()
				end(t, controller.loop)
				f.watch()
				c.event(f)
				err := controller.sync(t.Context(), demoKey)
				if is := f.services()["demo-node1"] == nil; is != (c.want == deleted) || (err != nil) != (c.want == stale) {
					t.Errorf("deleted: %t; sync: %v", is, err)
				}
				if told := strings.Join(f.writes(), "; "); c.want != "" && strings.Contains(told, "not Ready: ") &&
					!strings.Contains(told, "not Ready: "+c.want) {
					t.Errorf("told %s, want %s", told, c.want)
				}
			})
		})
	}
}

// TestDeletionIsStopped: when a nodeSelector is corrected while most Services are being deleted, the others stay.
func TestDeletionIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 1000
		ls := testLocalService(inPlace(nodes))
		objects := []runtime.Object{ls, testNode("ssd", "disk=ssd"), testService(ls, "ssd")}
		for i := range nodes - 1 {
			node := fmt.Sprintf("node%03d", i)
			objects = append(objects, testNode(node), testService(ls, node))
		}
		f := newFixture(t, objects...)
		f.deps.Options.WriteConcurrency = 1
		var deletions atomic.Int64
		f.kube.PrependReactor("delete", "services", func(core.Action) (bool, runtime.Object, error) {
			if deletions.Add(1) == 10 {
				f.set(testLocalService(func(ls *v1alpha1.LocalService) { ls.Generation = 3 }))
				time.Sleep(time.Millisecond) // Now the caches know.
			}
			return false, nil, nil
		})
		f.runLocalServices()
		f.set(testLocalService(func(ls *v1alpha1.LocalService) {
			ls.Generation, ls.Spec.NodeSelector = 2, map[string]string{"disk": "ssd"}
		}))
		time.Sleep(time.Minute)
		if deletions.Load() != 10 || len(f.services()) != nodes {
			t.Errorf("%d deletions, %d Services in the end", deletions.Load(), len(f.services()))
		}
	})
}

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

// TestPatchOfADeletedService: that somebody else deletes what is about to be changed is no failure of ours.
func TestPatchOfADeletedService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService(inPlace(1))
		f := newFixture(t, ls, testNode("node1"), testService(ls, "node1", func(s *corev1.Service) { s.Labels = nil }))
		f.kube.PrependReactor("patch", "services", func(core.Action) (bool, runtime.Object, error) {
			if f.services()["demo-node1"] != nil {
				f.remove(testService(ls, "node1"))
			}
			return true, nil, apierrors.NewNotFound(corev1.Resource("services"), "demo-node1")
		})
		f.runLocalServices()
		if told := fmt.Sprint(f.writes(), f.recorded()); strings.Contains(told, "WriteFailed") ||
			f.services()["demo-node1"] == nil {
			t.Errorf("%s; %d Services", told, len(f.services()))
		}
	})
}

// TestRefusedReplacementsAreToldOnce: which of several Services was tried, and under which name, is nothing new.
func TestRefusedReplacementsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService()
		withAddress := testLocalService(func(ls *v1alpha1.LocalService) { ls.Spec.ClusterIP = "" })
		objects := []runtime.Object{ls}
		for _, node := range []string{"alpha", "beta", "gamma", "delta"} {
			objects = append(objects, testNode(node), testService(withAddress, node))
		}
		f := newFixture(t, objects...)
		var tries atomic.Int64
		f.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
			service := a.(core.CreateActionImpl).Object.(*corev1.Service)
			if tries.Add(1); service.Name != "" {
				return true, nil, apierrors.NewAlreadyExists(corev1.Resource("services"), service.Name)
			}
			return true, nil, apierrors.NewForbidden(corev1.Resource("services"),
				service.GenerateName+rand.String(5), errors.New("a policy says no"))
		})
		f.runLocalServices()
		for i := range 600 { // Such as an echo that comes before the answer.
			time.Sleep(time.Second)
			touched := f.deps.Caches.LocalServices.Get("default", "demo").DeepCopy()
			touched.Labels = map[string]string{"beat": fmt.Sprint(i)}
			f.set(touched)
		}
		if got := tries.Load(); got > 20 {
			t.Errorf("%d tries in 10 minutes", got)
		}
		if told := f.recorded(); len(told) != 1 {
			t.Errorf("told %d times: %q", len(told), told)
		}
	})
}

// TestSlowLiveRead: however long it takes to read the LocalService before its Services are written, some are.
func TestSlowLiveRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, append(testNodes(3), testLocalService())...)
		f.deps.Options.WriteConcurrency = 1
		f.nodes.PrependReactor("get", "localservices", func(core.Action) (bool, runtime.Object, error) {
			time.Sleep(6 * time.Second)
			return false, nil, nil
		})
		f.runLocalServices()
		time.Sleep(time.Minute)
		if got := len(f.services()); got != 3 {
			t.Errorf("%d Services after a minute", got)
		}
	})
}

// TestHangingDeletion: a deletion that is never answered does not keep Services from being created.
func TestHangingDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService()
		f := newFixture(t, append(testNodes(3), ls, testService(ls, "gone"))...)
		f.deps.Options.WriteConcurrency = 1
		f.kube.PrependReactor("delete", "services", func(core.Action) (bool, runtime.Object, error) {
			time.Sleep(writer.Timeout)
			return true, nil, context.DeadlineExceeded
		})
		f.runLocalServices()
		time.Sleep(2 * time.Minute)
		if got := len(f.services()); got != 4 {
			t.Errorf("%d Services after 2 minutes", got)
		}
	})
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
