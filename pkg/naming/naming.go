// Package naming computes the names that belong to a node: the name of its Service in a LocalService, its hostname or
// that of its group in a LocalService with mode: Hostnames, and the value of the node label on its pods. The names are
// stable over releases, so that clients can compute the names that they connect to.
package naming

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// MaxLocalServiceLength limits the characters in the name of a LocalService. It leaves room in a Service name for
	// a separator and a hash, so that every node, whatever its name, can have a Service.
	MaxLocalServiceLength = validation.DNS1035LabelMaxLength - 1 - hashLength

	// hashLength is the number of characters, of 5 bits each, of a hash in a name. Among 5,000 nodes, the probability
	// that two hashes are equal is 1 in 10^8.
	hashLength = 10
)

// hashEncoding encodes hashes in lower-case base 32, which is valid in DNS labels.
var hashEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ServiceName returns the name of the Service that the LocalService named localService has for the node named node.
//
// The name is <localService>-<node>, with the node's name as in Hostname. If that has more than 63 characters, it is
// <localService>-<readable>-<hash>: readable is as much of the node's name as fits, and hash is a hash of the node's
// whole name. The result is always a valid Service name. Of nodes that want one name, one has it, as in Hostname.
func ServiceName(localService, node string) string {
	name := localService + "-" + dashed(node)
	if isLabel(name, false) && name[0] >= 'a' { // A Service's name begins with a letter.
		return name
	}
	hashed := node
	prefix := sanitize(localService)
	if prefix == "" || prefix[0] >= '0' && prefix[0] <= '9' {
		prefix = "x" + prefix
	}
	if prefix = cut(prefix, MaxLocalServiceLength); prefix != localService {
		// The API accepts no LocalService of that name. Keep the result valid and distinct all the same.
		hashed = localService + "/" + node
	}
	return prefix + "-" + withHash(cut(sanitize(node), MaxLocalServiceLength-len(prefix)-1), hashed)
}

// withHash appends the hash of a whole name to the readable part of it, which may be empty.
func withHash(readable, whole string) string {
	if readable == "" {
		return hash(whole)
	}
	return readable + "-" + hash(whole)
}

// Hostname returns the hostname of a node in a LocalService with mode: Hostnames, by its name or, with groupBy, of a
// group of nodes, by the value of their label. The hostname is in lower case, with '-' for each '.' and '_'. If it has
// more than 63 characters, which no value has, it is <readable>-<hash>, as in ServiceName. The result is always a valid
// hostname (a DNS label of RFC 1123).
//
// If several want one name, such as a-b, a.b and A_b, the one that is that name has it. If none is, the one that sorts
// first has it. The others have no name.
func Hostname(nodeOrValue string) string {
	if name := dashed(nodeOrValue); isLabel(name, false) {
		return name
	}
	return withHash(cut(sanitize(nodeOrValue), validation.DNS1123LabelMaxLength-1-hashLength), nodeOrValue)
}

// dashed returns a name in lower case, with '-' for each '.' and '_'.
func dashed(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(name), ".", "-"), "_", "-")
}

// NodeLabelValue returns the value of the node label for the node named node. That is the name itself if it is a
// valid label value (at most 63 characters; dots are fine), as nearly always. Otherwise it is as much of the name as
// fits, and a hash of the whole name.
func NodeLabelValue(node string) string {
	if isLabel(node, true) {
		return node
	}
	return withHash(cut(sanitize(node, '.'), validation.LabelValueMaxLength-1-hashLength), node)
}

// isLabel reports whether s is a DNS label (RFC 1123) or, where dots are allowed, a node's name that is a valid label
// value. It is equivalent to package validation, but does not allocate, because it runs for every node in every sync.
func isLabel(s string, dots bool) bool {
	if s == "" || len(s) > validation.LabelValueMaxLength || strings.Trim(s, "-.") != s {
		return false
	}
	for _, r := range s {
		if !isLabelChar(r) && !(dots && r == '.') {
			return false
		}
	}
	return true
}

func isLabelChar(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-'
}

// sanitize replaces with '-' all characters that are neither valid in a DNS label nor listed in also, and trims
// characters that may not begin or end a name.
func sanitize(s string, also ...rune) string {
	s = strings.Map(func(r rune) rune {
		if isLabelChar(r) || slices.Contains(also, r) {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	return strings.Trim(s, "-.")
}

// cut shortens s to at most n characters, ending in a letter or digit.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:max(n, 0)]
	}
	return strings.TrimRight(s, "-.")
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hashEncoding.EncodeToString(sum[:])[:hashLength]
}
