package app

import (
	"errors"
	"flag"
	"strings"
	"testing"
)

// TestUnparsableFlags: the error is in the last lines of the log, and no list of all flags follows it.
func TestUnparsableFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"-no-such-flag": "flag provided but not defined: -no-such-flag",
		"-workers=many": `invalid value "many" for flag -workers: parse error`,
		"-profiling=x":  `invalid boolean value "x" for -profiling: parse error`,
	} {
		var stdout, stderr strings.Builder
		_, err := NewOptions([]string{arg}, &stdout, &stderr)
		if err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: the error is %v", arg, err)
		}
		if got, want := stderr.String(), want+"\n"+seeHelp+"\n"; got != want || stdout.String() != "" {
			t.Errorf("%s: printed\n%s\nwant\n%s", arg, got, want)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for arg, want := range map[string][2]string{ // on standard output and standard error
		"-help":     {"", "Usage: local-service-controller [flags]\n"},
		"--version": {"local-service-controller version v", ""},
	} {
		var stdout, stderr strings.Builder
		if _, err := NewOptions([]string{arg}, &stdout, &stderr); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: the error is %v", arg, err)
		}
		for i, got := range []string{stdout.String(), stderr.String()} {
			if !strings.Contains(got, want[i]) || want[i] == "" && got != "" {
				t.Errorf("%s: printed %q", arg, got)
			}
		}
	}
}
