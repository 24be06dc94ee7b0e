package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// message is sent by the sandbox to `up`, which is outside.
type message struct {
	Ready bool   `json:",omitempty"`
	Error string `json:",omitempty"`
}

// runSandbox runs a cluster in namespaces of this machine.
func runSandbox(ctx context.Context, dir workdir, c config, havePort func(int) error) error {
	for _, image := range c.Images {
		if err := image.write(dir); err != nil {
			return err
		}
	}
	if err := pauseImage(c.Binary).write(dir); err != nil {
		return err
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the API server's clients: %w", err)
	}
	defer l.Close()
	if err := havePort(l.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	// The listening socket stays one of the machine's network, also in the hands of a process in another one.
	listener, err := l.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("handing the listening socket over: %w", err)
	}
	defer listener.Close()
	messages, report, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe for the sandbox's messages: %w", err)
	}
	defer messages.Close()
	cmd := sandboxProcess(dir)
	cmd.ExtraFiles = []*os.File{listener, report}
	wait, err := startChild(cmd)
	report.Close()
	if err != nil {
		return fmt.Errorf("starting the sandbox: %w", err)
	}
	err = followSandbox(ctx, messages, dir)
	_ = cmd.Process.Kill() // fails only if it has ended
	_ = wait()             // an end by that signal is no failure
	return err
}

// newNamespaces are the namespaces that the sandbox has, and each node in it.
const newNamespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC |
	syscall.CLONE_NEWUTS | syscall.CLONE_NEWCGROUP

// sandboxProcess is a process in new namespaces. Ending it ends all processes in them, and with the last of those the
// namespaces themselves, their interfaces and mounts.
func sandboxProcess(dir workdir) *exec.Cmd {
	cmd := self(sandboxApplet, string(dir))
	cmd.Stderr = os.Stderr
	cmd.Env = append(cmd.Env, "PATH="+searchPath(), "HOME="+string(dir))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: newNamespaces}
	if os.Geteuid() != 0 {
		asRoot(cmd.SysProcAttr)
	}
	return cmd
}

// asRoot makes the process root in a new user namespace, where root is the user we are.
func asRoot(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
}

// followSandbox waits until the sandbox fails, or ctx ends.
func followSandbox(ctx context.Context, messages io.Reader, dir workdir) error {
	failure := make(chan error, 1)
	go func() {
		in := json.NewDecoder(messages)
		for {
			var m message
			switch err := in.Decode(&m); {
			case err != nil:
				failure <- errors.New("the sandbox ended without saying why")
				return
			case m.Ready:
				ready(dir)
			default:
				failure <- errors.New(m.Error)
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-failure:
		return err
	}
}
