package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// ready prints the line that callers wait for.
func ready(dir workdir) { fmt.Printf("ready: KUBECONFIG=%s\n", dir.path("kubeconfig")) }

// runControlPlane runs a control plane as ordinary processes of this machine.
func runControlPlane(ctx context.Context, dir workdir, c config, havePort func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &daemons{cancel: cancel}
	defer d.kill()
	port, release, err := reservePort()
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
func reservePort() (port int, release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var addr unix.Sockaddr
	if err == nil {
		addr, err = unix.Getsockname(fd)
	}
	if err != nil { // Then this process ends.
		return 0, nil, fmt.Errorf("reserving a port of 127.0.0.1: %w", err)
	}
	return addr.(*unix.SockaddrInet4).Port, func() { unix.Close(fd) }, nil
}

// waitForServiceAccount returns when pods can be created in the default namespace, unless no controller is going to
// make that possible.
func waitForServiceAccount(ctx context.Context, client kubernetes.Interface, controllers string) error {
	list := strings.Split(cmp.Or(controllers, "*"), ",")
	if !app.IsControllerEnabled(names.ServiceAccountController, nil, list) {
		return nil
	}
	return poll(ctx, startTimeout, "waiting for the default service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
