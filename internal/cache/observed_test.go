package cache

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// syncedUpTo is a store that has observed its resource up to a resource version.
type syncedUpTo struct{ version string }

func (s *syncedUpTo) lastSyncedVersion(string) string { return s.version }

var demo = types.NamespacedName{Namespace: "default", Name: "demo"}

// TestObserved: a write is observed when the store has reached its resource version, even if the answers arrived in
// another order than the writes were made.
func TestObserved(t *testing.T) {
	for name, c := range map[string]struct {
		written []string // resource versions
		synced  string
		want    bool
	}{
		"nothing was written":              {nil, "5", true},
		"before":                           {[]string{"7"}, "6", false},
		"just then":                        {[]string{"7"}, "7", true},
		"later":                            {[]string{"7"}, "8", true},
		"before, of fewer digits":          {[]string{"10"}, "9", false},
		"the first of two":                 {[]string{"7", "9"}, "8", false},
		"both":                             {[]string{"7", "9"}, "9", true},
		"the older answer comes last":      {[]string{"9", "7"}, "8", false},
		"both, the older answer came last": {[]string{"9", "7"}, "9", true},
		"a store without a version":        {[]string{"7"}, "", true},
		"an invalid version":               {[]string{"x"}, "6", true},
		"no version":                       {[]string{""}, "6", true},
		"an invalid version after another": {[]string{"7", "x"}, "6", true},
	} {
		t.Run(name, func(t *testing.T) {
			o, store := NewObserved(), &syncedUpTo{c.synced}
			for _, version := range c.written {
				o.Wrote(demo, store, version)
			}
			if got := o.Wait(demo, store, ObservedTimeout) == 0; got != c.want {
				t.Errorf("observed: %t, want %t", got, c.want)
			}
			if o.Wait(types.NamespacedName{Namespace: "default", Name: "other"}, store, ObservedTimeout) != 0 {
				t.Error("another key waits, too")
			}
		})
	}
}

// TestObservedStores: each resource is observed separately, because resource versions of different resources are not
// comparable.
func TestObservedStores(t *testing.T) {
	o, services, localServices := NewObserved(), &syncedUpTo{"5"}, &syncedUpTo{"5"}
	o.Wrote(demo, services, "7")
	if o.SinceWrite(demo, services) > time.Hour || o.SinceWrite(demo, localServices) < time.Hour {
		t.Error("another resource counts as written")
	}
	o.Wrote(demo, localServices, "6")
	expect := func(when string, wantServices, wantLocalServices bool) {
		t.Helper()
		gotServices := o.Wait(demo, services, ObservedTimeout) == 0
		gotLocalServices := o.Wait(demo, localServices, ObservedTimeout) == 0
		if gotServices != wantServices || gotLocalServices != wantLocalServices {
			t.Errorf("%s: observed %t and %t, want %t and %t", when, gotServices, gotLocalServices, wantServices,
				wantLocalServices)
		}
	}
	expect("neither", false, false)
	services.version = "7"
	expect("one", true, false)
	localServices.version = "6"
	expect("both", true, true)
	services.version = "6"
	expect("only the other", false, true)
	o.Forget(demo)
	expect("forgotten", true, true)
	if o.SinceWrite(demo, services) < time.Hour {
		t.Error("what is forgotten counts as written")
	}
}

// TestObservedWaits: a sync looks again soon after its write, and later less often, but every second. It waits for no
// more than a minute, for example after a restore of etcd. An earlier write does not shorten the wait for a later one.
// After five minutes nothing is remembered.
func TestObservedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, store := NewObserved(), &syncedUpTo{"5"}
		for _, c := range []struct {
			writes      string // a version, "" for nothing
			after, want time.Duration
		}{
			{"7", 0, minWait},
			{"", 100 * time.Millisecond, 50 * time.Millisecond},
			{"", ObservedTimeout - 100*time.Millisecond, maxWait},
			{"8", ObservedTimeout, maxWait},
			{"", time.Nanosecond, 0},
		} {
			if c.writes != "" {
				o.Wrote(demo, store, c.writes)
			}
			time.Sleep(c.after)
			if got := o.Wait(demo, store, ObservedTimeout); got != c.want {
				t.Errorf("%s later: waits %s, want %s", c.after, got, c.want)
			}
		}
		if time.Sleep(StatusTimeout); len(o.writes.Keys()) > 0 {
			t.Errorf("%v are remembered after %s", o.writes.Keys(), StatusTimeout)
		}
	})
}

// TestObservedByInformer: a store has observed a write when its informer has handled its event, a later event of any
// object of the resource, or a bookmark. Receiving the event is not enough.
func TestObservedByInformer(t *testing.T) {
	service := func(name, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			ResourceVersion: version}}
	}
	for name, event := range map[string]func(*watch.FakeWatcher){
		"itself":              func(w *watch.FakeWatcher) { w.Add(service("demo-a", "7")) },
		"a later state of it": func(w *watch.FakeWatcher) { w.Modify(service("there", "8")) },
		"another object":      func(w *watch.FakeWatcher) { w.Add(service("other", "8")) },
		"a deletion":          func(w *watch.FakeWatcher) { w.Delete(service("there", "8")) },
		"a bookmark":          func(w *watch.FakeWatcher) { w.Action(watch.Bookmark, service("", "7")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				watcher := watch.NewFake()
				store := watchedStore(t, watcher, service("there", "3"), service("too", "2"))
				o := NewObserved()
				o.Wrote(demo, store, "5")
				if o.Wait(demo, store, ObservedTimeout) != 0 {
					t.Error("the write is older than the list, and does not count as observed")
				}
				o.Wrote(demo, store, "7")
				if o.Wait(demo, store, ObservedTimeout) == 0 {
					t.Error("observed before the watch sent anything")
				}
				watcher.Modify(service("too", "6"))
				if synctest.Wait(); o.Wait(demo, store, ObservedTimeout) == 0 {
					t.Error("observed after an earlier change")
				}
				event(watcher)
				if synctest.Wait(); o.Wait(demo, store, ObservedTimeout) != 0 {
					t.Errorf("not observed: the store has observed %q", store.lastSyncedVersion("default"))
				}
			})
		})
	}
}

// watchedStore is a store of Services that begins with a list of resource version 5, and then uses a watch.
func watchedStore(t *testing.T, watcher watch.Interface, listed ...*corev1.Service) *Store[*Service] {
	t.Helper()
	list := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}
	for _, service := range listed {
		list.Items = append(list.Items, *service)
	}
	reader := NewReader(noWatchList{},
		func(context.Context, metav1.ListOptions) (*corev1.ServiceList, error) { return list, nil },
		func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watcher, nil })
	store := newStore(&Options{OnReadError: func(context.Context, string, error) {}}, "services",
		[]string{metav1.NamespaceAll}, func(string) Reader { return reader },
		func(full *corev1.Service) (*Service, error) { return trimService(full, nodeLabelKey) }, nil)
	go store.run(t.Context())
	time.Sleep(time.Second)
	synctest.Wait()
	return store
}

// noWatchList is a client that does not support streaming lists.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }
