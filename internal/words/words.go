// Package words has the helpers for messages that people read: it counts, lists, cuts and escapes. What a message says
// is decided elsewhere.
package words

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
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
	isHarmless := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	if !strings.ContainsFunc(text, func(r rune) bool { return !isHarmless(r) }) {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		switch {
		case isHarmless(r):
			out.WriteRune(r)
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&out, `\x%02x`, text[i]) // no UTF-8
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return out.String()
}
