package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Where things are inside a node, wherever they are on the machine: some of its directories are hidden there.
const (
	insideRoot    = "/run/playground"
	insideBinary  = insideRoot + "/playground" // this binary, for CoreDNS
	insideLibexec = insideRoot + "/bin"
	insideConfig  = insideRoot + "/config"
	insideDir     = workdir(insideRoot + "/dir")
	insideStatic  = insideRoot + "/static-pods" // as in config/kubelet.yaml
)

// source is a file or directory of the machine, held open so that it can be mounted after something else has been
// mounted over it.
type source struct {
	target string
	isDir  bool
	fd     int
}

// privateMounts makes the mount namespace that we are in a node's: what the kubelet, containerd, CNI plug-ins and crun
// write goes to memory and ends with the node.
func privateMounts(dir workdir, node, binary string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	var sources []source
	for _, s := range []struct {
		path, target string
		isDir        bool
	}{
		{binary, insideBinary, false},
		{libexec(binary), insideLibexec, true},
		{string(dir), string(insideDir), true},
		{dir.staticPods(node), insideStatic, true},
	} {
		fd, err := unix.Open(s.path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening %s: %w", s.path, err)
		}
		defer unix.Close(fd)
		sources = append(sources, source{s.target, s.isDir, fd})
	}
	for p, mode := range map[string]string{"/run": "755", "/var/lib": "755", "/var/log": "755", "/opt": "755",
		"/tmp": "1777"} {
		if _, err := os.Stat(p); err != nil {
			continue // nothing to hide
		}
		if err := unix.Mount("tmpfs", p, "tmpfs", 0, "mode="+mode); err != nil {
			return fmt.Errorf("mounting a tmpfs on %s: %w", p, err)
		}
	}
	for _, s := range sources {
		if err := s.mount(); err != nil {
			return err
		}
	}
	return mountKernelFiles()
}

func (s source) mount() error {
	if err := mountPoint(s.target, s.isDir); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", s.fd), s.target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", s.target, err)
	}
	return nil
}

func mountPoint(path string, isDir bool) error {
	dir := path
	if !isDir {
		dir = filepath.Dir(path)
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil && !isDir {
		err = os.WriteFile(path, nil, 0o755)
	}
	if err != nil {
		return fmt.Errorf("making a mount point: %w", err)
	}
	return nil
}

// mountKernelFiles mounts /proc for the node's own processes and, whatever the machine has, cgroup version 2.
func mountKernelFiles() error {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	// The kubelet insists on these: it sees them as it wants them, and the machine keeps its own.
	for name, value := range map[string]string{"vm/overcommit_memory": "1", "kernel/panic": "10",
		"kernel/panic_on_oops": "1"} {
		f := filepath.Join(insideRoot, filepath.Base(name))
		if err := os.WriteFile(f, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("writing a kernel parameter for the kubelet: %w", err)
		}
		if err := unix.Mount(f, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting a kernel parameter for the kubelet: %w", err)
		}
	}
	// The tmpfs is there because the same file system cannot be mounted twice on one directory.
	if err := unix.Mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mounting a tmpfs on /sys/fs/cgroup: %w", err)
	}
	if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mounting cgroup2: %w", err)
	}
	return nil
}
