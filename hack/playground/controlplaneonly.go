package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ready prints the line that callers wait for.
func ready(dir workdir) { fmt.Printf("ready: KUBECONFIG=%s\n", dir.path("kubeconfig")) }

// runControlPlane runs a control plane as ordinary processes of this machine.
func runControlPlane(ctx context.Context, dir workdir, c config, havePort func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &daemons{cancel: cancel}
	defer d.kill()
	port, release, err := reservePort(c.Port)
	if err != nil {
		return err
	}
	defer release()
	if err := havePort(port); err != nil {
		return err
	}
	cp := &controlPlane{dir: dir, config: c, ip: "127.0.0.1", port: port, daemons: d}
	client, err := cp.start(ctx)
	if err != nil {
		return err
	}
	if err := waitForServiceAccount(ctx, client, c.Controllers); err != nil {
		return err
	}
	ready(dir)
	<-ctx.Done()
	return context.Cause(ctx)
}

// reservePort finds a port of 127.0.0.1 that stays free for kube-apiserver: it is bound here for as long as the
// playground runs, in a way that lets processes of the same user listen on it (--permit-port-sharing).
func reservePort(port int) (int, func(), error) {
	fail := func(err error) (int, func(), error) {
		return 0, nil, fmt.Errorf("reserving port %d of 127.0.0.1: %w", port, err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	release := func() { unix.Close(fd) }
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		release()
		return fail(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		release()
		return fail(err)
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		release()
		return fail(err)
	}
	return addr.(*unix.SockaddrInet4).Port, release, nil
}

// waitForServiceAccount returns when pods can be created in the default namespace, unless no controller is going to
// make that possible.
func waitForServiceAccount(ctx context.Context, client kubernetes.Interface, controllers string) error {
	if !makesServiceAccounts(controllers) {
		return nil
	}
	return poll(ctx, startTimeout, "waiting for the default service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// makesServiceAccounts reads kube-controller-manager's --controllers.
func makesServiceAccounts(controllers string) bool {
	list := strings.Split(controllers, ",")
	has := func(prefix string) bool { // under its name, or the old one
		return slices.Contains(list, prefix+"serviceaccount-controller") ||
			slices.Contains(list, prefix+"serviceaccount")
	}
	return !has("-") && (controllers == "" || slices.Contains(list, "*") || has(""))
}
