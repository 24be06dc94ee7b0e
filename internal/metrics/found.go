package metrics

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// found has what the last sync of a LocalService found that its status does not count: keys to Findings, of which none
// is zero.
var found sync.Map

// Findings are numbers of Services of a LocalService.
type Findings struct {
	// Invalid is true if the spec cannot be turned into Services. Nothing else was looked at then.
	Invalid bool
	// Conflicted are not made because their name is taken.
	Conflicted int
	// Contested have fields that are left as somebody else sets them.
	Contested int
}

// SetInvalid sets whether a LocalService's spec is invalid, and returns whether it was. There is no series for one that
// is not.
func SetInvalid(key types.NamespacedName, isInvalid bool) (before bool) {
	before = findingsOf(key).Invalid
	switch {
	case isInvalid:
		InvalidLocalServices.WithLabelValues(key.Namespace, key.Name).Set(1)
		SetFindings(key, Findings{Invalid: true})
	case before:
		InvalidLocalServices.Delete(map[string]string{"namespace": key.Namespace, "name": key.Name})
		SetFindings(key, Findings{})
	}
	return before
}

// SetFindings records what a sync of a LocalService has found.
func SetFindings(key types.NamespacedName, findings Findings) {
	if findings == (Findings{}) {
		found.Delete(key)
	} else {
		found.Store(key, findings)
	}
}

// Forget forgets a LocalService that is gone.
func Forget(key types.NamespacedName) {
	SetInvalid(key, false)
	found.Delete(key)
}

func findingsOf(key types.NamespacedName) Findings {
	findings, _ := found.Load(key)
	f, _ := findings.(Findings)
	return f
}
