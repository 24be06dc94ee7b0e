package main

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestHostnamesWhenTheNameComesFree: names are published as soon as the Service that had the name is gone.
func TestHostnamesWhenTheNameComesFree(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), append(testNodes(1), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "stranger", ResourceVersion: "1"},
		Spec:       corev1.ServiceSpec{ClusterIP: "None"},
	}), func(w *hostnamesWorld) {
		w.publish("1", "a")
		w.wantReady("False NameTaken 0/1, 1 Services")
		// As on a real network, now and then, the answer is there before the watch tells the Service.
		w.kube.PrependReactor("create", "services", func(a core.Action) (bool, runtime.Object, error) {
			service := testobject.Stored(a.(core.CreateAction).GetObject().(*corev1.Service))
			service.ResourceVersion, service.UID = w.nextVersion(), "ours"
			time.AfterFunc(10*time.Millisecond, func() {
				if err := w.kube.Tracker().Create(a.GetResource(), service, service.Namespace); err != nil {
					panic(err)
				}
			})
			return true, service, nil
		})
		w.remove(w.service("demo"))
		time.Sleep(5 * time.Minute)
		w.want("the name is free", "a=10.0.0.1")
		w.wantReady("True HostnamesInPlace 1/1, 2 Services")
	})
}

// TestHostnamesRefusedCopies: what serves stays while its successor is refused.
func TestHostnamesRefusedCopies(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		w.publish("1", "a")
		w.want("first", "a=10.0.0.1")
		w.refuse("create", "endpointslices", "")
		w.publish("2", "a") // Kubernetes packs the pod into another EndpointSlice.
		w.removeSlice("1")
		time.Sleep(time.Minute)
		w.want("its successor is refused", "a=10.0.0.1")
	})
}

// TestHostnamesReadyMeansPublished: a name that is not published is not ready.
func TestHostnamesReadyMeansPublished(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a")}, func(w *hostnamesWorld) {
		w.refuse("create", "endpointslices", "")
		w.publish("1", "a")
		w.want("refused")
		w.wantReady("False WriteFailed 0/1, 2 Services")
	})
}

// TestHostnamesSourceMadeAnew: the names of a Source that has gone stay until Kubernetes has published all pods of the
// next one, and not its first EndpointSlice only.
func TestHostnamesSourceMadeAnew(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *hostnamesWorld) {
			w.publish("1", "a")
			w.publish("2", "b")
			w.want("first", "a=10.0.0.1", "b=10.0.0.1")
			w.remove(w.service(sourceName))
			for _, s := range []string{"1", "2"} {
				w.removeSlice(s)
			}
			settle()
			w.want("the source is gone", "a=10.0.0.1", "b=10.0.0.1")
			w.publish("3", "a") // The second one follows.
			if got := w.names(); !slices.Contains(got, "b=10.0.0.1") {
				t.Errorf("only the first of two EndpointSlices is there, and b is gone already: %q", got)
			}
		})
}

// TestHostnamesLabelTakenOffSource: Kubernetes takes it off the EndpointSlices as well, of which none has gone.
func TestHostnamesLabelTakenOffSource(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *hostnamesWorld) {
			w.kube.PrependReactor("get", "endpointslices", func(a core.Action) (bool, runtime.Object, error) {
				return a.(core.GetAction).GetName() == sourceName+"-2", &discoveryv1.EndpointSlice{}, nil
			})
			w.publish("1", "a")
			w.publish("2", "b")
			w.writes()
			object, err := w.kube.DiscoveryV1().EndpointSlices("default").Get(t.Context(), sourceName+"-2", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			delete(object.Labels, v1alpha1.HostnamesLabelKey)
			w.set(object)
			// The tracker of the fake client does not filter: to the watch with a label selector it is a deletion.
			w.remove(object)
			time.Sleep(time.Minute)
			if got := w.writes(); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "delete endpointslices") }) {
				t.Errorf("deleted without a look at the API server: %q", got)
			}
		})
}

// TestChangeOfModeWhilePodsChange: pods that come and go all the time do not keep the previous mode for ever.
func TestChangeOfModeWhilePodsChange(t *testing.T) {
	inHostnamesWorld(t, testLocalService(), []runtime.Object{testNode("a"), testNode("b")}, func(w *hostnamesWorld) {
		w.edit(func(ls *v1alpha1.LocalService) { ls.Spec.Mode = v1alpha1.ModeHostnames })
		for i := range 60 { // Each round takes 20 seconds.
			if w.publish("1", "a", []string{"b", "b!"}[i%2]); i > 0 {
				time.Sleep(17 * time.Second)
			}
		}
		if c := meta.FindStatusCondition(w.localService().Status.Conditions, v1alpha1.ConditionRetiring); c != nil {
			t.Errorf("after 20 minutes: %v %s, since %v", c.Status, c.Message, time.Since(c.LastTransitionTime.Time))
		}
	})
}

// TestHostnamesOrphanedCopies: copies whose Service was deleted with --cascade=orphan neither stay as they are for ever
// nor keep the names from being published.
func TestHostnamesOrphanedCopies(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *hostnamesWorld) {
			w.publish("1", "a")
			copied, err := w.kube.DiscoveryV1().EndpointSlices("default").Get(t.Context(), sourceName+"-1-named",
				metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			w.remove(w.service("demo"))
			copied = copied.DeepCopy()
			copied.OwnerReferences = nil // by the garbage collector
			w.set(copied)
			settle()
			w.publish("1", "a", "b")
			time.Sleep(5 * time.Minute)
			w.want("the Service is made anew", "a=10.0.0.1", "b=10.0.0.2")
		})
}

// TestHostnamesEditedAfterContest: an admission webhook has had its way once, and is gone. What somebody then makes of
// the copy is put right.
func TestHostnamesEditedAfterContest(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *hostnamesWorld) {
			var isMutated atomic.Bool
			isMutated.Store(true)
			w.kube.PrependReactor("create", "endpointslices", func(a core.Action) (bool, runtime.Object, error) {
				if isMutated.Load() {
					a.(core.CreateAction).GetObject().(*discoveryv1.EndpointSlice).Endpoints[0].Zone = new("other")
				}
				return false, nil, nil
			})
			w.publish("1", "a", "b")
			w.want("first", "a=10.0.0.1", "b=10.0.0.2")
			isMutated.Store(false)
			copied, err := w.kube.DiscoveryV1().EndpointSlices("default").Get(t.Context(), sourceName+"-1-named", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			copied = copied.DeepCopy()
			copied.Endpoints[0].Hostname, copied.Endpoints[1].Hostname = copied.Endpoints[1].Hostname, copied.Endpoints[0].Hostname
			w.set(copied)
			time.Sleep(time.Minute)
			w.want("after a minute", "a=10.0.0.1", "b=10.0.0.2")
		})
}

// TestHostnamesOthersWhileOneIsRefused: one copy that is refused does not keep the others from following the pods.
func TestHostnamesOthersWhileOneIsRefused(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *hostnamesWorld) {
			w.publish("1", "a")
			w.refuse("create", "endpointslices", "")
			w.publish("2", "b")
			time.Sleep(5 * time.Minute)
			w.publish("1", "a!") // and 3 seconds
			w.want("the pod on a is not ready any more", "a=10.0.0.1!")
		})
}

// TestCopyDeletedUnseen: a copy that somebody deletes before the watch has told that it is there is made again, although
// the watch never tells of either.
func TestCopyDeletedUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := testLocalService(hostnamesMode)
		w := &hostnamesWorld{newFixture(t, testNode("a"), ls), ls}
		var mu sync.Mutex
		var silent []*watch.FakeWatcher
		w.kube.PrependWatchReactor("endpointslices", func(a core.Action) (bool, watch.Interface, error) {
			mu.Lock()
			defer mu.Unlock()
			fake := watch.NewFake()
			if strings.Contains(a.(core.WatchAction).GetWatchRestrictions().Labels.String(), v1alpha1.HostnamesLabelKey) {
				silent = append(silent, fake)
			}
			return true, fake, nil
		})
		w.kube.PrependReactor("list", "endpointslices", func(a core.Action) (bool, runtime.Object, error) {
			_, object, err := core.ObjectReaction(w.kube.Tracker())(a)
			if list, isList := object.(*discoveryv1.EndpointSliceList); isList {
				list.ResourceVersion = w.nextVersion()
			}
			return true, object, err
		})
		w.runAll()
		w.publish("1", "a")
		copies := w.kube.DiscoveryV1().EndpointSlices("default")
		source, err := copies.Get(t.Context(), sourceName+"-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		silent[0].Add(source.DeepCopy())
		settle()
		w.want("published", "a=10.0.0.1")
		published, err := copies.Get(t.Context(), sourceName+"-1-named", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w.remove(published)
		silent[0].Error(&apierrors.NewResourceExpired("too old resource version").ErrStatus)
		time.Sleep(20 * time.Second)
		w.want("after the copy was deleted", "a=10.0.0.1")
	})
}

// TestHostnamesSourceDeletedInForeground: while the garbage collector deletes the EndpointSlices of the source before
// that itself, the names stay.
func TestHostnamesSourceDeletedInForeground(t *testing.T) {
	inHostnamesWorld(t, testLocalService(hostnamesMode), []runtime.Object{testNode("a"), testNode("b")},
		func(w *hostnamesWorld) {
			w.publish("1", "a")
			w.publish("2", "b")
			time.Sleep(time.Minute)
			source := w.service(sourceName).DeepCopy()
			source.DeletionTimestamp, source.Finalizers = new(metav1.Now()), []string{"foregroundDeletion"}
			w.set(source)
			time.Sleep(20 * time.Millisecond)
			w.removeSlice("2")
			time.Sleep(10 * time.Second)
			w.want("while the source is being deleted", "a=10.0.0.1", "b=10.0.0.1")
		})
}
