package app

import (
	"fmt"
	"hash/fnv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/localservice-dev/local-service-controller/internal/words"
)

// maxEventNote limits the note of an event, in bytes, as the API server does.
const maxEventNote = 1024

// RecordTo returns a function that records an event. The recorder of client-go counts events that differ only in their
// notes as one event, and keeps only the first note. A hash of the note in the action keeps them apart.
func RecordTo(recorder events.EventRecorder) func(regarding runtime.Object, eventType, reason, note string) {
	return func(regarding runtime.Object, eventType, reason, note string) {
		if len(note) > maxEventNote {
			note = words.Cut(note, maxEventNote-len("…"))
		}
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(note)) // It never fails.
		recorder.Eventf(regarding, nil, eventType, reason, fmt.Sprintf("%s-%08x", reason, hash.Sum32()), "%s", note)
	}
}
