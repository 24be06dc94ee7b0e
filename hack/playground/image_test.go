package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseImageSource(t *testing.T) {
	self, err := os.Executable() // static, as the tests are built with CGO_ENABLED=0
	must(t, err)
	for arg, want := range map[string]string{
		"app=" + self:                "docker.io/library/app:latest",
		"localhost/app:1=" + self:    "localhost/app:1",
		"example.com/a/b:v2=" + self: "example.com/a/b:v2",
	} {
		got, err := parseImageSource(arg)
		if err != nil || got.Ref != want || got.Binary != self {
			t.Errorf("%s: got %+v, %v", arg, got, err)
		}
	}
	text := filepath.Join(t.TempDir(), "script.sh")
	must(t, os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600))
	for arg, want := range map[string]string{
		"app":                 "REF=BINARY",
		"=" + self:            "REF=BINARY",
		"app=":                "REF=BINARY",
		"App=" + self:         "not an image's name",
		"app=/does/not/exist": "no such file",
		"app=" + text:         "has to be a Linux binary",
	} {
		if _, err := parseImageSource(arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q in it", arg, err, want)
		}
	}
}

func TestImageFileIsPerName(t *testing.T) {
	a := imageSource{Ref: "localhost/a:1", Binary: "x"}
	b := imageSource{Ref: "localhost/a:1", Binary: "y"}
	c := imageSource{Ref: "localhost/c:1", Binary: "x"}
	if a.file("/d") != b.file("/d") || a.file("/d") == c.file("/d") {
		t.Error("an image has to replace the one of the same name, and no other")
	}
}
