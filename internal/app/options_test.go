package app

import (
	"errors"
	"flag"
	"strings"
	"testing"
)

// TestWrongFlags: the errors are in the last lines of the log, and no list of all flags is printed with them.
func TestWrongFlags(t *testing.T) {
	for _, test := range [][]string{ // the flags, and what is said about them
		{"-no-such-flag", "flag provided but not defined: -no-such-flag"},
		{"-workers=many", `invalid value "many" for flag -workers: parse error`},
		{"-profiling=x", `invalid boolean value "x" for -profiling: parse error`},
		{"-workers=0 -write-concurrency=0", "-workers=0 must be at least 1", "-write-concurrency=0 must be at least 1"},
		{"--workers=0", "-workers=0 must be at least 1"},
		{"-leader-election-lease-duration=2s", "-leader-election-lease-duration=2s must be at least 3s"},
		{"-metrics-secure-address=:0 -metrics-tls-cert-file=x",
			"-metrics-tls-cert-file and -metrics-tls-key-file need each"},
		{"-metrics-tls-cert-file=x -metrics-tls-key-file=y", "-metrics-tls-cert-file needs -metrics-secure-address"},
		{"-namespaces=", `flag -namespaces: "" cannot be the name of a namespace`},
		{"-namespaces=a,B", `flag -namespaces: "B" cannot be the name of a namespace`, "lower case"},
		{"-node-label-key=a_/b", "-node-label-key=a_/b is no label key"},
		{"-node-label-key=", "-node-label-key= is no label key"},
		{"-node-label-key=owner", "-node-label-key=owner", "choose another one"},
		{"-label-pods=false -label-all-pods", "-label-pods=false contradicts -label-all-pods"},
		{"-logging-format=xml", "xml"},
		{"kubeconfig=FILE", `unexpected argument "kubeconfig=FILE"`, "flags begin with a dash"},
	} {
		var stdout, stderr strings.Builder
		_, err := NewOptions(strings.Fields(test[0]), &stdout, &stderr)
		if err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: the error is %v", test[0], err)
		}
		got := stderr.String()
		for _, want := range test[1:] {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the output lacks %q:\n%s", test[0], want, got)
			}
		}
		if !strings.HasSuffix(got, "\n"+seeHelp+"\n") || strings.Contains(got, "\n  -") || stdout.String() != "" {
			t.Errorf("%s: printed\n%s\n%s", test[0], stdout.String(), got)
		}
	}
}
