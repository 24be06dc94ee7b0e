package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programs of this machine are copied with their libraries. The tests call them by name, some with flags that busybox
// does not know. sh is not busybox's, which would prefer its own programs to these.
var programs = map[string]string{"sh": "sh", "curl": "curl", "dig": "dig", "nc": "nc.openbsd", "getent": "getent"}

// Everything else that a shell script needs is busybox, which has to be linked statically.
const busybox = "bin/busybox"

// texts are small files.
var texts = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
	"etc/group":         "root:x:0:\nnogroup:x:65534:\n",
	"etc/nsswitch.conf": "hosts: files dns\n",
	"www/index.html":    "<title>Welcome to nginx!</title>\n",
}

// folders are empty, and everybody may write there.
var folders = []string{"data/", "tmp/", "uploads/", "var/tmp/"}

// collect returns the files of the images, in the order of their names.
func collect(agnhost, porter string) ([]file, error) {
	sources := map[string]string{"agnhost": agnhost}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		sources[name] = filepath.Join(porter, name)
	}
	links := map[string]string{"agnhost-2": "agnhost"}
	for name, command := range programs {
		path, err := exec.LookPath(command)
		if err != nil {
			return nil, fmt.Errorf("install it first with `hack/packages.sh --conformance`: %w", err)
		}
		sources["bin/"+name] = path
		if err := addLibraries(path, sources); err != nil {
			return nil, err
		}
	}
	if err := addBusybox(sources, links); err != nil {
		return nil, err
	}
	files := []file{}
	for name, source := range sources {
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: name, mode: 0o755, content: content})
	}
	for name, target := range links {
		files = append(files, file{name: name, mode: 0o777, target: target})
	}
	for name, text := range texts {
		files = append(files, file{name: name, mode: 0o644, content: []byte(text)})
	}
	for _, name := range folders {
		files = append(files, file{name: name, mode: 0o1777})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return files, nil
}

var libraryPath = regexp.MustCompile(`(/\S+) \(0x`)

// addLibraries adds the libraries that a program is linked with, under their paths on this machine.
func addLibraries(path string, sources map[string]string) error {
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("listing the libraries of %s: %w: %s", path, err, out)
	}
	for _, match := range libraryPath.FindAllStringSubmatch(string(out), -1) {
		sources[strings.TrimPrefix(match[1], "/")] = match[1]
	}
	return nil
}

// addBusybox adds busybox, and a link for each of its commands that is no program already.
func addBusybox(sources, links map[string]string) error {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	commands, err := exec.Command(path, "--list").Output()
	if err != nil {
		return fmt.Errorf("listing the commands of %s: %w", path, err)
	}
	sources[busybox] = path
	for _, command := range strings.Fields(string(commands)) {
		if name := "bin/" + command; sources[name] == "" {
			links[name] = filepath.Base(busybox)
		}
	}
	return nil
}
