package main

import (
	"strings"
	"testing"
)

// TestArguments: what cannot become an image that works is refused before anything is built.
func TestArguments(t *testing.T) {
	const created, revision = "-created=2026-01-02T03:04:05Z", "-revision=0123"
	for want, args := range map[string][]string{
		"read -created":       {"-version=v1.2.3", revision},
		`-version is "1.2.3"`: {created, revision, "-version=1.2.3"},
		`-version is "v1.2"`:  {created, revision, "-version=v1.2"},
		`-version is ""`:      {created, revision},
		"-revision is needed": {created, "-version=v0.0.0-12-g0123abc-dirty"},
		`-arch is "x86"`:      {created, revision, "-version=v1.2.3", "-arch=x86"},
	} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
