package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClaimDir(t *testing.T) {
	write := func(t *testing.T, path, content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, dir string)
		refused string // part of the error, empty if the directory may be taken
	}{
		"missing": {prepare: func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}},
		"empty": {prepare: func(*testing.T, string) {}},
		"left by a killed playground": {prepare: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, lockFile), lockMagic+"pid 1\n")
			write(t, filepath.Join(dir, "kubeconfig"), "old")
			if err := os.MkdirAll(filepath.Join(dir, "etcd", "member"), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		"left just after its lock was made": {prepare: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, lockFile), "")
		}},
		"left by kubectl": {prepare: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, kubectlCache), "")
		}},
		"somebody's files": {prepare: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "thesis.txt"), "years of work")
		}, refused: "left alone"},
		"a lock of something else": {prepare: func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, lockFile), "something else")
			write(t, filepath.Join(dir, "thesis.txt"), "years of work")
		}, refused: "left alone"},
		"a file": {prepare: func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			write(t, dir, "")
		}, refused: "not a directory"},
		"a link to another directory": {prepare: func(t *testing.T, dir string) {
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(t.TempDir(), dir); err != nil {
				t.Fatal(err)
			}
		}, refused: "not a directory of yours"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			tc.prepare(t, dir)
			lock, err := claimDir(workdir(dir))
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Fatalf("error is %v, want one about %q", err, tc.refused)
				}
				if _, err := os.Stat(filepath.Join(dir, "thesis.txt")); strings.Contains(name, "some") && err != nil {
					t.Errorf("a foreign file was removed: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			checkFresh(t, dir)
			if err := removeDir(workdir(dir)); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("the directory is still there: %v", err)
			}
		})
	}
}

func checkFresh(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode is %v, want one that keeps others out", info.Mode())
	}
	for _, old := range []string{"kubeconfig", "etcd", kubectlCache} {
		if _, err := os.Stat(filepath.Join(dir, old)); !os.IsNotExist(err) {
			t.Errorf("%s of an earlier playground is still there", old)
		}
	}
}

func TestClaimDirTwice(t *testing.T) {
	dir := workdir(t.TempDir())
	lock, err := claimDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = claimDir(dir)
	for _, want := range []string{"already running in " + string(dir), fmt.Sprintf("pid %d", os.Getpid()), "KUBECONFIG=", "--dir"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
	lock.Close()
	lock, err = claimDir(dir)
	if err != nil {
		t.Fatalf("taking over after the first has ended: %v", err)
	}
	lock.Close()
}

func TestEmptyKeepsLogs(t *testing.T) {
	dir := workdir(t.TempDir())
	lock, err := claimDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := empty(dir, "logs"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "logs "+lockFile {
		t.Errorf("what is left is %q", got)
	}
}

func TestCheckSocketPaths(t *testing.T) {
	const node = "k8s01"
	fits := maxSocketPath - len("/nodes/"+node+".sock")
	if err := workdir("/" + strings.Repeat("d", fits-1)).checkSocketPaths([]string{node}); err != nil {
		t.Errorf("a directory that just fits is refused: %v", err)
	}
	err := workdir("/" + strings.Repeat("d", fits)).checkSocketPaths([]string{node})
	if err == nil || !strings.Contains(err.Error(), "1 characters too long") || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("error is %v, want one that says by how much and what to do", err)
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
