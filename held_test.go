package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// heldFixture has a LocalService that selects none any more of the 10 nodes that it has Services for, but 100 others.
// Half of its Services may be deleted without a confirmation.
func heldFixture(t *testing.T, objects ...runtime.Object) *fixture {
	ls := testLocalService(selectNew)
	objects = append(objects, ls)
	for i := range 10 {
		old := fmt.Sprintf("old%d", i)
		objects = append(objects, testNode(old, "disk=old"), testService(ls, old))
	}
	for i := range 100 {
		objects = append(objects, testNode(fmt.Sprintf("new%d", i), "disk=new"))
	}
	f := newFixture(t, objects...)
	f.deps.Options.Limits = plan.Limits{MaxDeleteFraction: 0.5}
	return f
}

func selectNew(ls *v1alpha1.LocalService) {
	ls.Generation, ls.Spec.NodeSelector = 2, map[string]string{"disk": "new"}
}

func selectOld(ls *v1alpha1.LocalService) {
	ls.Generation, ls.Spec.NodeSelector = 1, map[string]string{"disk": "old"}
}

// made are the Services that have been made or adopted, and deleted, since it was last asked.
func (f *fixture) made() (made, deleted int) {
	for _, write := range f.writes() {
		switch {
		case strings.HasPrefix(write, "delete services"):
			deleted++
		case strings.HasPrefix(write, "create services"), strings.HasPrefix(write, "patch services"):
			made++
		}
	}
	return made, deleted
}

// silence has the watch of LocalServices tell nothing.
func (f *fixture) silence() {
	f.client.PrependWatchReactor("localservices", func(core.Action) (bool, watch.Interface, error) {
		return true, watch.NewFake(), nil
	})
}

// lateWatch has the watch of a resource tell nothing until it is broken.
func lateWatch(fake *core.Fake, resource string) *watch.FakeWatcher {
	late, isLate := watch.NewFake(), true
	fake.PrependWatchReactor(resource, func(core.Action) (bool, watch.Interface, error) {
		wasLate := isLate
		isLate = false // the next one
		return wasLate, late, nil
	})
	return late
}

// TestHeld: deletions that are withheld stay so while Services for other nodes are made or adopted, of which they are a
// smaller part then. That is told before, so that whoever goes on knows, and so nothing is made while it cannot be.
func TestHeld(t *testing.T) {
	for name, c := range map[string]struct {
		failures int  // of writes of the status
		isSilent bool // the watch of LocalServices
		orphans  bool // are there
		want     int  // Services made or adopted
	}{
		"told":              {0, false, false, 101},
		"refused twice":     {2, false, false, 101},
		"refused for ever":  {1 << 30, false, false, 0},
		"not seen":          {0, true, false, 100},
		"orphans":           {1, false, true, 101},
		"orphans, for ever": {1 << 30, false, true, 0},
		"orphans, not seen": {0, true, true, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var orphans []runtime.Object
				for i := range 100 {
					if c.orphans {
						orphans = append(orphans, testService(testLocalService(), fmt.Sprintf("new%d", i),
							func(s *corev1.Service) { s.OwnerReferences = nil }))
					}
				}
				f := heldFixture(t, orphans...)
				f.client.PrependReactor("patch", "localservices", func(core.Action) (bool, runtime.Object, error) {
					c.failures--
					return c.failures >= 0, nil, apierrors.NewInternalError(errors.New("etcd is slow"))
				})
				if c.isSilent {
					f.silence()
				}
				stop := f.startLocalServices(4)
				time.Sleep(70 * time.Second)
				f.set(testNode("joins", "disk=new"))
				time.Sleep(time.Minute)
				stop()
				if made, deleted := f.made(); made != c.want || deleted != 0 {
					t.Errorf("%d Services created or adopted and %d deleted, want %d and none", made, deleted, c.want)
				}
				told := strings.Contains(strings.Join(f.recorded(), "\n"), "Warning DeletionHeld 10 of 10 Services")
				if !told && c.want > 0 {
					t.Error("no event tells that deletions are held")
				}
				f.deps.Caches = f.newCaches(false)
				f.runLocalServices()
				if _, deleted := f.made(); deleted != 0 {
					t.Errorf("%d Services deleted by the next instance", deleted)
				}
			})
		})
	}
}

// TestHeldOnTheWay: an instance that is stopped while it fans out leaves to the next one what it has withheld.
func TestHeldOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := heldFixture(t)
		f.deps.Kube = slowServices{Interface: f.kube, creating: func(*corev1.Service, bool) { time.Sleep(time.Second) }}
		stop := f.startLocalServices(4)
		time.Sleep(slowProgressInterval + time.Second) // The progress has been told.
		stop()
		f.deps.Caches, f.deps.Kube = f.newCaches(false), f.kube
		f.runLocalServices()
		if got := len(f.services()); got != 110 {
			t.Errorf("%d Services, want 100 new ones and the 10 old ones", got)
		}
	})
}

// TestHeldUnseenByTheNext: an instance that takes over with a cache from before deletions were withheld does not delete.
func TestHeldUnseenByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := heldFixture(t)
		leader := f.deps
		f.silence()
		f.deps.Caches = f.newCaches(false)
		f.watch()
		next := f.deps
		f.client.WatchReactionChain = f.client.WatchReactionChain[1:]
		f.deps = leader
		stop := f.startLocalServices(4)
		settle()
		stop()
		if made, deleted := f.made(); made != 100 || deleted != 0 {
			t.Fatalf("%d Services created and %d deleted, want 100 and none", made, deleted)
		}
		f.deps = next
		controller := f.newLocalServices()
		f.start(controller.Run, 4)
		time.Sleep(2 * time.Minute)
		if _, deleted := f.made(); deleted != 0 {
			t.Errorf("%d Services deleted by the next instance", deleted)
		}
	})
}

// TestHeldNoMore: an instance whose cache tells of a hold that the one before has let go of makes nothing before it sees
// that.
func TestHeldNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := heldFixture(t)
		f.edit(func(ls *v1alpha1.LocalService) { ls.Status.HeldServices = 10 })
		late := lateWatch(&f.client.Fake, "localservices")
		controller := f.newLocalServices()
		f.watch()
		f.edit(func(ls *v1alpha1.LocalService) { ls.Status.HeldServices = 0 })
		f.start(controller.Run, 4)
		settle()
		if made, deleted := f.made(); made != 0 || deleted != 0 {
			t.Errorf("%d Services created and %d deleted by a status that is not so", made, deleted)
		}
		late.Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
		time.Sleep(time.Minute)
		if ls := f.localService(); len(f.services()) != 110 || ls.Status.HeldServices != 10 {
			t.Errorf("%d Services, and deletions held of %d; want 110, of 10", len(f.services()), ls.Status.HeldServices)
		}
	})
}

// TestHeldUntilCorrected: what is left to delete when the spec has been corrected is a small part of what there was.
func TestHeldUntilCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := heldFixture(t)
		f.runLocalServices()
		f.remove(testNode("old0", "disk=old"))
		settle()
		f.edit(func(ls *v1alpha1.LocalService) { ls.Generation, ls.Spec.NodeSelector = 3, nil })
		settle()
		if made, deleted := f.made(); made != 100 || deleted != 1 {
			t.Errorf("%d Services created and %d deleted, want 100 and that of the node that has gone", made, deleted)
		}
	})
}

// TestHeldWhileInvalid: an edit that cannot be carried out lets go of nothing.
func TestHeldWhileInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := heldFixture(t)
		stop := f.startLocalServices(4)
		settle()
		valid := testLocalService().Spec.Selector
		f.edit(func(ls *v1alpha1.LocalService) {
			ls.Generation, ls.Spec.Selector = 3, map[string]string{v1alpha1.DefaultNodeLabelKey: "x"}
		})
		settle()
		stop()
		f.deps.Caches = f.newCaches(false)
		f.runLocalServices()
		f.edit(func(ls *v1alpha1.LocalService) { ls.Generation, ls.Spec.Selector = 4, valid })
		settle()
		if got := len(f.services()); got != 110 {
			t.Errorf("%d Services, want 100 new ones and the 10 old ones", got)
		}
	})
}

// TestConfirmationTakenBack: deletions stop when their confirmation is taken back, and do not begin if the watch of
// LocalServices is late to tell of that.
func TestConfirmationTakenBack(t *testing.T) {
	confirmed := func(ls *v1alpha1.LocalService) {
		ls.Annotations = map[string]string{v1alpha1.AllowDeletionAnnotationKey: "true"}
	}
	t.Run("while they are under way", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := heldFixture(t)
			f.edit(confirmed)
			f.deps.Kube = slowServices{Interface: f.kube, deleting: func(string) { time.Sleep(time.Second) }}
			f.deps.Options.WriteConcurrency = 2
			f.startLocalServices(4)
			time.Sleep(1500 * time.Millisecond)
			f.edit(func(ls *v1alpha1.LocalService) { ls.Annotations = nil })
			time.Sleep(time.Minute)
			if _, deleted := f.made(); deleted > 4 {
				t.Errorf("%d Services deleted, of which 4 were confirmed", deleted)
			}
		})
	})
	t.Run("unseen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := heldFixture(t)
			f.edit(func(ls *v1alpha1.LocalService) {
				confirmed(ls)
				ls.Spec.NodeSelector = nil
			})
			f.silence()
			f.runLocalServices()
			f.edit(func(ls *v1alpha1.LocalService) { ls.Annotations = nil })
			for i := range 100 {
				f.remove(testNode(fmt.Sprintf("new%d", i)))
			}
			time.Sleep(time.Minute)
			if _, deleted := f.made(); deleted != 0 {
				t.Errorf("%d Services deleted that nobody confirms any more", deleted)
			}
		})
	})
	t.Run("after deletions were refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := heldFixture(t)
			isRefused := true
			f.kube.PrependReactor("delete", "services", func(core.Action) (bool, runtime.Object, error) {
				return isRefused, nil, apierrors.NewForbidden(corev1.Resource("services"), "", errors.New("a policy says no"))
			})
			f.runLocalServices()
			f.edit(confirmed)
			settle()
			f.edit(func(ls *v1alpha1.LocalService) { ls.Annotations = nil })
			settle()
			isRefused = false
			time.Sleep(5 * time.Minute)
			if got := len(f.services()); got != 110 {
				t.Errorf("%d Services, want 100 new ones and the 10 old ones", got)
			}
			f.edit(confirmed)
			settle()
			if ls := f.localService(); len(f.services()) != 100 || ls.Status.HeldServices != 0 {
				t.Errorf("%d Services when it is confirmed again, and %d held", len(f.services()), ls.Status.HeldServices)
			}
		})
	})
}

// TestHeldBeforeSeen: while the watch of Services is late, it is not known how many deletions there are, so nothing is
// made of which they would be a smaller part. A node that joins where there are none gets its Service.
func TestHeldBeforeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := heldFixture(t)
		f.edit(selectOld)
		late := lateWatch(&f.kube.Fake, "services")
		f.startLocalServices(4)
		settle()
		f.set(testNode("both", "disk=old"))
		f.set(testNode("joins", "disk=old"))
		settle()
		if got := len(f.services()); got != 12 {
			t.Errorf("%d Services, want those of two nodes that have joined, and 10", got)
		}
		f.remove(testNode("old0"))
		settle()
		if conditions := f.localService().Status.Conditions; meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
			t.Error("the LocalService is told to be ready")
		}
		f.set(testNode("both", "disk=new"))
		f.edit(selectNew)
		settle()
		if got := len(f.services()); got != 12 {
			t.Errorf("%d Services, want none to be made while it is not seen what is there", got)
		}
		late.Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
		time.Sleep(time.Minute)
		if ls := f.localService(); len(f.services()) != 112 || ls.Status.HeldServices != 12 {
			t.Errorf("%d Services, deletions held of %d; want 112, of 12", len(f.services()), ls.Status.HeldServices)
		}
	})
}

// TestHeldLateStatus: a status from before deletions were withheld, which an instance was not answered and the API server
// carries out late, does not let go of them.
func TestHeldLateStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := heldFixture(t)
		f.edit(selectOld)
		var late core.Action
		f.client.PrependReactor("patch", "localservices", func(a core.Action) (bool, runtime.Object, error) {
			isFirst := late == nil
			if isFirst {
				late = a
			}
			return isFirst, nil, context.DeadlineExceeded
		})
		stop := f.startLocalServices(4)
		synctest.Wait()
		stop()
		f.edit(selectNew)
		f.deps.Caches = f.newCaches(false)
		f.runLocalServices()
		if _, _, err := f.applyStatus(late); !apierrors.IsConflict(err) {
			t.Errorf("the late status: %v", err)
		}
		time.Sleep(time.Minute)
		if got := len(f.services()); got != 110 {
			t.Errorf("%d Services, want 100 new ones and the 10 old ones", got)
		}
	})
}

// TestRefusedWhileUnseen: a status that is not written over one that was not seen does not have refused Services tried
// again any sooner.
func TestRefusedWhileUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, append(testNodes(3), testLocalService())...)
		f.deps.Options.Limits = plan.Limits{MaxDeleteFraction: 0.5}
		tries := 0
		f.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			tries++
			return true, nil, apierrors.NewForbidden(corev1.Resource("services"), "", errors.New("a policy says no"))
		})
		f.silence()
		controller := f.newLocalServices()
		f.watch()
		f.edit(func(ls *v1alpha1.LocalService) { ls.Labels = map[string]string{"seen": "false"} })
		f.start(controller.Run, 4)
		time.Sleep(9 * time.Second) // The first retry is after 10.
		synctest.Wait()
		if tries != 3 {
			t.Errorf("%d tries to create 3 Services", tries)
		}
	})
}

// TestLatencyWhileUnsure: a node's wait is over when its Service is made, and not when that is put off.
func TestLatencyWhileUnsure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService()
		f := newFixture(t, append(testNodes(1), ls, testService(ls, "node00"))...)
		f.deps.Options.Limits = plan.Limits{MaxDeleteFraction: 0.5}
		late := lateWatch(&f.kube.Fake, "services")
		controller := f.newLocalServices()
		var expect func(what string, count uint64, least, most time.Duration)
		controller.nodeWaits, expect = latencies(t)
		f.watch()
		f.run(controller.Run)
		f.set(testNode("first"))
		expect("first", 1, batchPeriod, 2*batchPeriod)
		f.remove(testNode("node00"))
		f.set(testNode("second"))
		expect("second, which waits", 0, 0, 0)
		late.Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
		time.Sleep(time.Minute)
		expect("second, when its Service is made", 1, time.Second, time.Minute)
	})
}
