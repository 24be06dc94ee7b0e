package main

import (
	"bytes"
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
	dir, name := workdir(args[1]), args[2]
	var ips []net.IP
	for ip := range strings.SplitSeq(args[3], ",") {
		ips = append(ips, net.ParseIP(ip))
	}
	err := runNode(dir, name, ips)
	// The user looks for logs from outside.
	fmt.Fprintln(os.Stderr, strings.ReplaceAll(err.Error(), string(insideDir), string(dir)))
	return 1
}

// runNode returns when something on the node has failed.
func runNode(dir workdir, name string, ips []net.IP) error {
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
	if err := writeConfigFiles(podSubnets(ips)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if err := setUpNodeNetwork(ctx, ips, c.Port); err != nil {
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
	err = start(self("kubelet", "--config", insideConfig+"/kubelet.yaml", "--node-ip", joined(ips),
		"--kubeconfig", insideDir.kubeconfigOf("node-"+name)))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// joined are addresses as the kubelet takes them.
func joined(ips []net.IP) string {
	var all []string
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	return strings.Join(all, ",")
}

// writeConfigFiles writes the configuration of a node with these ranges of pod addresses.
func writeConfigFiles(subnets []string) error {
	files, err := fs.Sub(configFiles, "config")
	if err != nil {
		return fmt.Errorf("finding the embedded configuration: %w", err)
	}
	network, err := fs.ReadFile(files, "cni.tmpl")
	if err == nil {
		err = os.CopyFS(insideConfig, files)
	}
	if err == nil {
		ranges := `[{"subnet": "` + strings.Join(subnets, `"}], [{"subnet": "`) + `"}]`
		network = bytes.ReplaceAll(network, []byte("RANGES"), []byte(ranges))
		err = os.WriteFile(filepath.Join(insideConfig, "pods.conflist"), network, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the node's configuration: %w", err)
	}
	return nil
}

// setUpNodeNetwork configures eth0, which the sandbox connects at the same time.
func setUpNodeNetwork(ctx context.Context, ips []net.IP, port int) error {
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
		if err := configureLink("eth0", ips[i]); err != nil {
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
	mux.HandleFunc("POST /images/{file}", answer(func(r *http.Request) error {
		return importImage(r.Context(), images, insideDir.path("images", filepath.Base(r.PathValue("file"))))
	}))
	mux.HandleFunc("GET /ready/services", answer(func(r *http.Request) error {
		return dialOnce(r.Context(), "tcp", net.JoinHostPort(apiServiceIP, "443"))
	}))
	mux.HandleFunc("GET /ready/dns", answer(func(r *http.Request) error {
		return resolveOnce(r.Context())
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
