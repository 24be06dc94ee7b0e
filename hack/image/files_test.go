package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func contains(t *testing.T, data []byte, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !bytes.Contains(data, []byte(part)) {
			t.Errorf("%q is not there", part)
		}
	}
}

// unpack returns the files of an archive.
func unpack(t *testing.T, file string) map[string][]byte {
	t.Helper()
	if filepath.Ext(file) != ".zip" {
		return untar(t, ungzip(t, read(t, file)))
	}
	archive := must(zip.OpenReader(file))
	defer archive.Close()
	files := map[string][]byte{}
	for _, entry := range archive.File {
		files[entry.Name] = must(fs.ReadFile(archive, entry.Name))
	}
	return files
}

func ungzip(t *testing.T, data string) []byte {
	t.Helper()
	return must(io.ReadAll(must(gzip.NewReader(strings.NewReader(data)))))
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	eachEntry(t, bytes.NewReader(archive), func(header *tar.Header, content []byte) { files[header.Name] = content })
	return files
}

// eachEntry calls do for each file of a tarball.
func eachEntry(t *testing.T, archive io.Reader, do func(header *tar.Header, content []byte)) {
	t.Helper()
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		do(header, must(io.ReadAll(reader)))
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// must returns a value, and panics if there is an error instead.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
