package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// lockFile marks a directory as a playground's. The directory is locked for as long as the playground runs.
	lockFile     = "playground.lock"
	lockMagic    = "directory of a local-service-controller playground, removed with it\n"
	kubectlCache = "kubectl-cache"
	// maxSocketPath is the longest path of a unix socket: sun_path has 108 bytes, one of them the terminating zero.
	maxSocketPath = 107
)

// workdir is the directory that holds everything a playground writes.
//
//	playground.lock   marker, with the pid   config.json   what `up` was asked for
//	kubeconfig        for the outside        pki/          keys, certificates, the components' kubeconfigs
//	logs/             kept on failure        images/       archives that every node imports when it starts
//	etcd/             data                   nodes/        a socket for each running node
//	*.sock            etcd's and the sandbox's
//	static-pods/NODE/ for the user: manifests of pods that the node's kubelet runs by itself
type workdir string

func (d workdir) path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

func (d workdir) logFile(name string) string { return d.path("logs", name+".log") }

func (d workdir) kubeconfigOf(name string) string { return d.path("pki", name+".kubeconfig") }

func (d workdir) sandboxSocket() string { return d.path("sandbox.sock") }

func (d workdir) nodeSocket(node string) string { return d.path("nodes", node+".sock") }

func (d workdir) staticPods(node string) string { return d.path("static-pods", node) }

// defaultDir is where a playground is when no --dir says otherwise.
func defaultDir() string {
	if dir := os.Getenv("PLAYGROUND_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("playground-%d", os.Getuid()))
}

// checkSocketPaths reports a directory that is too long for the sockets in it.
func (d workdir) checkSocketPaths(nodes []string) error {
	longest := d.sandboxSocket()
	for _, n := range nodes {
		if s := d.nodeSocket(n); len(s) > len(longest) {
			longest = s
		}
	}
	if over := len(longest) - maxSocketPath; over > 0 {
		return fmt.Errorf("the directory %s is %d characters too long: the unix socket %s in it may have at most "+
			"%d; choose a shorter --dir",
			d, over, longest, maxSocketPath)
	}
	return nil
}

// claimDir makes dir an empty directory that belongs to this process until the returned lock is closed or the process
// ends. A directory left by a playground that was killed is emptied; one that is not a playground's is left alone.
func claimDir(dir workdir) (lock *os.File, err error) {
	if err := os.MkdirAll(string(dir), 0o700); err != nil {
		return nil, fmt.Errorf("making the playground's directory: %w", err)
	}
	if err := checkOwned(dir); err != nil {
		return nil, err
	}
	if lock, err = os.Open(string(dir)); err != nil {
		return nil, fmt.Errorf("opening the playground's directory: %w", err)
	}
	switch err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = alreadyRunning(dir)
	case err != nil:
		err = fmt.Errorf("locking the playground's directory: %w", err)
	default:
		mine, err1 := lock.Stat()
		there, err2 := os.Stat(string(dir))
		if err1 != nil || err2 != nil || !os.SameFile(mine, there) { // A playground that has just ended removed it.
			lock.Close()
			return claimDir(dir)
		}
		err = takeOver(dir)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// checkOwned refuses a directory that somebody else may have put there, as /tmp is everybody's, and one that has
// contents but was not made by a playground.
func checkOwned(dir workdir) error {
	info, err := os.Lstat(string(dir))
	if err != nil {
		return fmt.Errorf("looking at the playground's directory: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory of yours: choose another one with --dir", dir)
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return fmt.Errorf("looking at the playground's directory: %w", err)
	}
	ours := len(entries) == 0
	for _, e := range entries {
		// A kubectl that was still running when the playground ended leaves its cache alone.
		ours = ours || e.Name() == lockFile || e.Name() == kubectlCache && len(entries) == 1
	}
	if !ours {
		return fmt.Errorf("%s has contents that are not a playground's (there is no %s in it), so it is left "+
			"alone: choose another directory with --dir",
			dir, lockFile)
	}
	if err := os.Chmod(string(dir), 0o700); err != nil {
		return fmt.Errorf("keeping others out of the playground's directory: %w", err)
	}
	return nil
}

func alreadyRunning(dir workdir) error {
	pid := "unknown"
	if b, err := os.ReadFile(dir.path(lockFile)); err == nil {
		if _, after, ok := strings.Cut(string(b), "pid "); ok {
			pid = strings.TrimSpace(after)
		}
	}
	return fmt.Errorf(`a playground is already running in %[1]s (pid %[2]s)
  to use it:            export KUBECONFIG=%[1]s/kubeconfig
  to stop it:           kill %[2]s
  to start another one: playground up --dir OTHER_DIRECTORY`, dir, pid)
}

// takeOver empties the locked directory and writes who has it now.
func takeOver(dir workdir) error {
	marker := dir.path(lockFile)
	if b, _ := os.ReadFile(marker); len(b) > 0 && !bytes.HasPrefix(b, []byte(lockMagic)) {
		return fmt.Errorf("%s was not written by a playground, so the directory is left alone: choose another "+
			"one with --dir", marker)
	}
	if err := empty(dir); err != nil {
		return err
	}
	if err := os.WriteFile(marker, fmt.Appendf(nil, "%spid %d\n", lockMagic, os.Getpid()), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", marker, err)
	}
	for _, sub := range []string{"logs", "pki", "images", "nodes", "static-pods"} {
		if err := os.Mkdir(dir.path(sub), 0o700); err != nil {
			return fmt.Errorf("making the playground's directory: %w", err)
		}
	}
	return nil
}

// empty removes everything in dir except the lock and what is named in keep.
func empty(dir workdir, keep ...string) error {
	entries, err := os.ReadDir(string(dir))
	if err != nil {
		return fmt.Errorf("emptying the playground's directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Name() == lockFile || slices.Contains(keep, e.Name()) {
			continue
		}
		if err := os.RemoveAll(dir.path(e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("emptying the playground's directory: %w", err))
		}
	}
	return errors.Join(errs...)
}

// removeDir removes a locked directory. The marker goes last: what is half gone must not look like somebody's files.
func removeDir(dir workdir) error {
	// A kubectl that is still running may write to its cache meanwhile.
	if err := empty(dir); err != nil && empty(dir) != nil {
		return err
	}
	if err := os.Remove(dir.path(lockFile)); err != nil {
		return fmt.Errorf("removing the playground's marker: %w", err)
	}
	// From here on somebody else may be moving in: then it is not empty any more, and theirs.
	if err := os.Remove(string(dir)); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the playground's directory: %w", err)
	}
	return nil
}
