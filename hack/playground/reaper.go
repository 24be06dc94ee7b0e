package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// children are the processes that we started and somebody waits for, which the reaper must leave to them.
var children = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

// startRegistered is cmd.Start, with the reaper kept from seeing the child before it is registered.
func startRegistered(cmd *exec.Cmd) error {
	children.Lock()
	defer children.Unlock()
	err := cmd.Start()
	if err == nil {
		children.pids[cmd.Process.Pid] = true
	}
	return err
}

// waitChild is cmd.Wait for what startChild started.
func waitChild(cmd *exec.Cmd) error {
	err := cmd.Wait()
	children.Lock()
	defer children.Unlock()
	delete(children.pids, cmd.Process.Pid)
	return err
}

// reapOrphans makes this process a proper process 1 of its pid namespace: what ends in there without a parent, such as
// the shim of a container, becomes our child, and stays a zombie until we wait for it.
func reapOrphans() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		for range ended {
			for !reapAll() {
				time.Sleep(10 * time.Millisecond) // whoever started the child that is in the way is about to reap it
			}
		}
	}()
}

// reapAll returns whether no orphan is left. It looks before it reaps, and what it sees first may be a child that is
// not its to reap.
func reapAll() bool {
	for {
		pid, err := endedChild()
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return true
		}
		children.Lock()
		ours := children.pids[pid]
		children.Unlock()
		if ours {
			return false
		}
		_, _ = unix.Wait4(pid, nil, 0, nil) // it has ended, so there is nothing to wait for and nothing to fail
	}
}

// endedChild is the pid of a child that has ended and that nobody has waited for yet, or 0.
func endedChild() (int, error) {
	// siginfo_t on 64-bit Linux, as waitid fills it in. The fields of unix.Siginfo are hidden.
	var info struct {
		signo, errno, code, _ int32
		pid                   int32
		_                     [108]byte
	}
	_, _, errno := unix.Syscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(info.pid), nil
}
