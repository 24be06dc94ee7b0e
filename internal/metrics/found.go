package metrics

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// invalid has the keys of the LocalServices whose spec is invalid, and found what the last sync of a LocalService has
// found that its status does not count: keys to findings, of which none is zero.
var invalid, found sync.Map

// Findings are numbers of Services of a LocalService.
type Findings struct {
	// Conflicted are not made because their name is taken.
	Conflicted int
	// Contested have fields that are left as somebody else sets them.
	Contested int
}

// SetInvalid tells whether a LocalService's spec is invalid. There is no series for one that is not. It returns whether
// it was invalid before.
func SetInvalid(key types.NamespacedName, isInvalid bool) (before bool) {
	if isInvalid {
		_, before = invalid.Swap(key, nil)
		InvalidLocalServices.WithLabelValues(key.Namespace, key.Name).Set(1)
		SetFindings(key, Findings{}) // Nothing was looked at.
		return before
	}
	if _, before = invalid.LoadAndDelete(key); before {
		InvalidLocalServices.Delete(map[string]string{"namespace": key.Namespace, "name": key.Name})
	}
	return before
}

// SetFindings tells what a sync of a LocalService has found.
func SetFindings(key types.NamespacedName, findings Findings) {
	if findings == (Findings{}) {
		found.Delete(key)
	} else {
		found.Store(key, findings)
	}
}

// Forget is told of a LocalService that is gone.
func Forget(key types.NamespacedName) {
	SetInvalid(key, false)
	found.Delete(key)
}

func findingsOf(key types.NamespacedName) Findings {
	findings, _ := found.Load(key)
	f, _ := findings.(Findings)
	return f
}
