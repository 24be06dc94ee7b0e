package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/localservice-dev/local-service-controller/internal/words"
)

const (
	// maxListed is how many items a text lists before it only counts.
	maxListed = 3
	// foreignLength is how many bytes a text has of what somebody else wrote.
	foreignLength = 300
)

// first lists the first few items, and counts the rest.
func first(items []string) string { return words.List(items, maxListed) }

// quoteForeign makes a line of a text that somebody else wrote.
func quoteForeign(text string) string {
	return words.Cut(words.Printable(strings.Join(strings.Fields(text), " ")), foreignLength)
}

// since says for how long something has been so or, with a zero now, since when; "" if that is not known.
func since(t metav1.Time, now time.Time) string {
	switch {
	case t.Unix() <= 0:
		return ""
	case now.IsZero():
		return "since " + t.UTC().Format(time.DateTime) + " UTC"
	}
	return "for " + duration.HumanDuration(max(now.Sub(t.Time), 0))
}

// only returns the items for which something is true.
func only[T any](items []T, is func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !is(item) })
}

// numbered returns a port as people write it, such as 8080/TCP.
func numbered(port int32, protocol corev1.Protocol) string {
	return fmt.Sprintf("%d/%s", port, cmp.Or(protocol, corev1.ProtocolTCP))
}

// withNote adds a note to a text, if there is one.
func withNote(text, note string) string {
	if note == "" {
		return text
	}
	return text + " (" + note + ")"
}

func nameIn(service, hostname string) string {
	if hostname == "" {
		return service
	}
	return hostname + "." + service
}

// Natural returns a function that compares names as people order them: node-2 comes before node-10. Only one goroutine
// may use it.
func Natural() func(a, b string) int {
	order := collate.New(language.Und, collate.Numeric)
	return func(a, b string) int { return cmp.Or(order.CompareString(a, b), cmp.Compare(a, b)) }
}
