package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
