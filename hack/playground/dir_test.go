package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClaimDir(t *testing.T) {
	for name, tc := range map[string]struct {
		missing bool
		files   map[string]string // what is in it
		refused string            // part of the error, empty if the directory may be taken
	}{
		"missing": {missing: true},
		"empty":   {},
		"left by a killed playground": {files: map[string]string{
			lockFile: lockMagic + "pid 1\n", "kubeconfig": "old", "etcd": "old", kubectlCache: "",
		}},
		"left just after its lock was made": {files: map[string]string{lockFile: ""}},
		"left by kubectl":                   {files: map[string]string{kubectlCache: ""}},
		"somebody's files":                  {files: map[string]string{"thesis.txt": "my work"}, refused: "left alone"},
		"a lock of something else": {
			files:   map[string]string{lockFile: "something else", "thesis.txt": "my work"},
			refused: "left alone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := workdir(t.TempDir()).path("d")
			if !tc.missing {
				must(t, os.Mkdir(dir, 0o755))
			}
			for file, content := range tc.files {
				must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
			}
			lock, err := claimDir(workdir(dir))
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Fatalf("error is %v, want one about %q", err, tc.refused)
				}
				_, err := os.Stat(filepath.Join(dir, "thesis.txt"))
				must(t, err)
				return
			}
			must(t, err)
			defer lock.Close()
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("want a directory that keeps others out, got %v, %v", info, err)
			}
			for _, old := range []string{"kubeconfig", "etcd", kubectlCache} {
				if _, err := os.Stat(filepath.Join(dir, old)); !os.IsNotExist(err) {
					t.Errorf("%s of an earlier playground is still there", old)
				}
			}
			must(t, removeDir(workdir(dir)))
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the directory is still there: %v", err)
			}
		})
	}
}

// A directory that somebody else may have put there, as /tmp is everybody's, is not taken.
func TestClaimDirOfOthers(t *testing.T) {
	link, file := filepath.Join(t.TempDir(), "link"), filepath.Join(t.TempDir(), "file")
	must(t, os.Symlink(t.TempDir(), link))
	must(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{link: "not a directory of yours", file: "not a directory"} {
		if _, err := claimDir(workdir(path)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want one about %q", path, err, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestClaimDirTwice(t *testing.T) {
	dir := workdir(t.TempDir())
	lock, err := claimDir(dir)
	must(t, err)
	_, err = claimDir(dir)
	pid := fmt.Sprintf("pid %d", os.Getpid())
	for _, want := range []string{"already running in " + string(dir), pid, "KUBECONFIG=", "--dir"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
	must(t, lock.Close())
	lock, err = claimDir(dir)
	must(t, err) // It takes over when the first has ended.
	must(t, lock.Close())
}

func TestCheckSocketPaths(t *testing.T) {
	const node = "k8s01"
	fits := maxSocketPath - len("/nodes/"+node+".sock")
	if err := workdir("/" + strings.Repeat("d", fits-1)).checkSocketPaths([]string{node}); err != nil {
		t.Errorf("a directory that just fits is refused: %v", err)
	}
	err := workdir("/" + strings.Repeat("d", fits)).checkSocketPaths([]string{node})
	for _, want := range []string{"1 characters too long", "--dir"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("PLAYGROUND_DIR", "")
	t.Setenv("TMPDIR", "/somewhere")
	if got, want := defaultDir(), fmt.Sprintf("/somewhere/playground-%d", os.Getuid()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	t.Setenv("PLAYGROUND_DIR", "/elsewhere")
	if got := defaultDir(); got != "/elsewhere" {
		t.Errorf("got %s, want $PLAYGROUND_DIR", got)
	}
}
