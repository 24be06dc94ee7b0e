// Package words has the helpers for messages that people read: it counts, lists, cuts and escapes. It also has the
// sentences about a LocalService that both the status and kubectl localservice use.
package words

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Count says how many there are: "1 Service", "2 Services".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// List lists the first few items, and counts the rest: "a, b and 3 more".
func List(items []string, most int) string {
	list := strings.Join(items[:min(len(items), most)], ", ")
	if more := len(items) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

// Join joins the texts that are not empty.
func Join(separator string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), separator)
}

// Cut cuts a text to a number of bytes, between characters, and marks where it was cut.
func Cut(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for bytes > 0 && !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes] + "…"
}

// Printable escapes, as in a Go string, what a terminal would obey or hide in a text that others wrote: control
// characters, line breaks, and invisible characters such as those that reverse the direction of writing. Names of
// owners and messages of containers may contain all of these.
func Printable(text string) string {
	quoted := strconv.Quote(text)
	return printable.Replace(quoted[1 : len(quoted)-1])
}

// printable takes back what only a Go string has to escape.
var printable = strings.NewReplacer(`\"`, `"`, `\\`, `\`)
