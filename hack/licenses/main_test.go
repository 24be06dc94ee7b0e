package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPrograms fails when something is linked into the controller or the plugin that has no license text.
func TestPrograms(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, []string{"../..", "../../cmd/kubectl-localservice"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nGo go1.", "\nk8s.io/client-go v", "\ngithub.com/spf13/cobra v", ": NOTICE\n", ": PATENTS\n",
		"third_party/forked/golang/LICENSE\n", "Apache License\n", "Redistribution and use in source and binary forms",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if n := strings.Count(out.String(), "APPENDIX: How to apply the Apache License to your work."); n > 12 {
		t.Errorf("the Apache License is there %d times: the same text must be printed once", n)
	}
	for _, unwanted := range []string{"localservice-dev/", ": ..", ": /"} { // this module; files outside of their own
		if strings.Contains(out.String(), unwanted) {
			t.Errorf("%q is there", unwanted)
		}
	}
}

func TestTexts(t *testing.T) {
	tests := map[string]struct {
		files []string // of a module whose packages are . and a/b
		want  []string // nothing: the module has no license
	}{
		"in the root":   {files: []string{"LICENSE"}, want: []string{"LICENSE"}},
		"with a notice": {files: []string{"LICENCE", "NOTICE"}, want: []string{"LICENCE", "NOTICE"}},
		"of what a package has copied": {files: []string{"COPYING", "a/LICENSE"}, want: []string{"COPYING",
			"a/LICENSE"}},
		"of a package that is not linked": {files: []string{"LICENSE", "other/LICENSE"}, want: []string{"LICENSE"}},
		"only there":                      {files: []string{"other/LICENSE"}},
		"none":                            {},
		"only a notice":                   {files: []string{"NOTICE"}},
		"empty":                           {files: []string{"LICENSE-EMPTY"}},
		"a program":                       {files: []string{"license.go"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			module := component{name: "example.com/module v1.0.0", root: t.TempDir()}
			deep := filepath.Join(module.root, "a", "b")
			for _, file := range test.files {
				write(t, filepath.Join(module.root, file), strings.TrimSuffix(file, "LICENSE-EMPTY"))
			}
			write(t, filepath.Join(deep, "b.go"), "package b")
			texts, err := linked{module: {module.root: true, deep: true}}.texts()
			if test.want == nil {
				if err == nil || !strings.Contains(err.Error(), module.name) {
					t.Errorf("the error is %v; want one that names %s", err, module.name)
				}
				return
			} else if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, files := range texts {
				got = append(got, files...)
			}
			for i := range test.want {
				test.want[i] = module.name + ": " + test.want[i]
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestPrintTexts(t *testing.T) {
	var out strings.Builder
	texts := map[string][]string{"free": {"b v1: LICENSE", "a v1: LICENSE"}, "other": {"c v1: COPYING"}}
	if err := printTexts(&out, texts); err != nil {
		t.Fatal(err)
	}
	const want = "\n" + line + "\na v1: LICENSE\nb v1: LICENSE\n" + line + "\n\nfree\n" +
		"\n" + line + "\nc v1: COPYING\n" + line + "\n\nother\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %s,\nwant %s", out.String(), want)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
