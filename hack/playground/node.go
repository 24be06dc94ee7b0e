package main

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/vishvananda/netlink"
)

//go:embed config
var configFiles embed.FS

// nodeMain is a machine of the cluster: containerd, kubelet and kube-proxy in namespaces of its own. Its arguments are
// the playground's directory, the node's name and its addresses.
func nodeMain(args []string) int {
	dir, name, ips := workdir(args[1]), args[2], args[3]
	err := runNode(dir, name, ips)
	// The user looks for logs from outside.
	fmt.Fprintln(os.Stderr, strings.ReplaceAll(err.Error(), string(insideDir), string(dir)))
	return 1
}

// runNode returns when something on the node has failed.
func runNode(dir workdir, name, ips string) error {
	c, err := dir.readConfig()
	if err != nil {
		return err
	}
	// The kubelet names its node after the host.
	if err := syscall.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := privateMounts(dir, name, c.Binary); err != nil {
		return err
	}
	if err := writeConfigFiles(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if err := setUpNodeNetwork(ctx, strings.Split(ips, ","), c.Port); err != nil {
		return err
	}
	d := &daemons{cancel: cancel}
	path := "PATH=" + insideLibexec + ":" + searchPath()
	start := func(cmd *exec.Cmd) error {
		cmd.Env = append(childEnv(os.Environ()), path, "HOME=/run")
		return d.start(cmd, insideDir.logFile(name+"-"+filepath.Base(cmd.Args[0])))
	}
	if err := start(self("kube-proxy", "--config", insideConfig+"/kube-proxy.yaml")); err != nil {
		return err
	}
	if err := start(exec.Command(insideLibexec+"/containerd", "-c", insideConfig+"/containerd.toml")); err != nil {
		return err
	}
	if err := serveNode(ctx, name); err != nil {
		return err
	}
	err = start(self("kubelet", "--config", insideConfig+"/kubelet.yaml", "--node-ip", ips,
		"--kubeconfig", insideDir.kubeconfigOf("node-"+name)))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func writeConfigFiles() error {
	files, err := fs.Sub(configFiles, "config")
	if err != nil {
		return fmt.Errorf("finding the embedded configuration: %w", err)
	}
	if err := os.CopyFS(insideConfig, files); err != nil {
		return fmt.Errorf("writing the node's configuration: %w", err)
	}
	return nil
}

// setUpNodeNetwork configures eth0, which the sandbox connects at the same time.
func setUpNodeNetwork(ctx context.Context, ips []string, port int) error {
	err := poll(ctx, startTimeout, "waiting for eth0", func(context.Context) error {
		_, err := netlink.LinkByName("eth0")
		return err
	})
	if err != nil {
		return err
	}
	if err := configureLink("lo"); err != nil {
		return err
	}
	for i, gateway := range gateways(len(ips) > 1) {
		if err := configureLink("eth0", net.ParseIP(ips[i])); err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Gw: gateway}); err != nil {
			return fmt.Errorf("setting the default route by %s: %w", gateway, err)
		}
	}
	if err := forwardPackets(len(ips) > 1); err != nil {
		return err
	}
	// The kubeconfig works on the node as it does outside, for what `playground run` runs.
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("listening for the API server's clients: %w", err)
	}
	go forward(l, net.JoinHostPort(gatewayIP, fmt.Sprint(apiPort)))
	return nil
}

// serveNode imports the images there are, and then serves what the command line and the sandbox want of a node. The
// socket also gives `playground run` the node's process: see nodePID.
func serveNode(ctx context.Context, name string) error {
	images, err := containerd.New("/run/containerd/containerd.sock", containerd.WithDefaultNamespace("k8s.io"),
		containerd.WithTimeout(startTimeout))
	if err != nil {
		return withLog(fmt.Errorf("connecting to containerd: %w", err), insideDir.logFile(name+"-containerd"))
	}
	// The client connects when it is first used, and containerd may not answer yet.
	err = poll(ctx, startTimeout, "waiting for containerd", func(ctx context.Context) error {
		_, err := images.Version(ctx)
		return err
	})
	if err != nil {
		return withLog(err, insideDir.logFile(name+"-containerd"))
	}
	l, err := listenUnix(insideDir.nodeSocket(name))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /images/{file}", answer(func(r *http.Request) (any, error) {
		return nil, importImage(r.Context(), images, insideDir.path("images", filepath.Base(r.PathValue("file"))))
	}))
	mux.HandleFunc("GET /ready/services", answer(func(r *http.Request) (any, error) {
		return nil, dialOnce(r.Context(), "tcp", net.JoinHostPort(apiServiceIP, "443"))
	}))
	mux.HandleFunc("GET /ready/dns", answer(func(r *http.Request) (any, error) {
		return nil, resolveOnce(r.Context())
	}))
	go serveHTTP(l, mux)
	// After listening: an image that `playground load` writes now is either seen here, or the node receives it.
	return importImages(ctx, images, insideDir.path("images", "*.tar"))
}

func dialOnce(ctx context.Context, network, addr string) error {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// resolveOnce asks the cluster's DNS for a name that is always there.
func resolveOnce(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(dnsServiceIP, "53"))
	}}
	_, err := r.LookupHost(ctx, "kubernetes.default.svc.cluster.local.")
	return err
}
