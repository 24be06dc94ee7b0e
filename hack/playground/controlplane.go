package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

const (
	serviceCIDR  = "10.96.0.0/16"
	serviceCIDR6 = "fd00:10:96::/112"
	apiServiceIP = "10.96.0.1" // the Service "kubernetes": the first address of serviceCIDR
	dnsServiceIP = "10.96.0.10"
	// Until Kubernetes' own 50 s are over, nobody wants to wait in a playground.
	nodeMonitorGracePeriod = "10s"
)

// controlPlane is etcd, kube-apiserver, kube-controller-manager and kube-scheduler, started in this process's
// namespaces.
type controlPlane struct {
	dir     workdir
	config  config
	ip      string // where the API server listens
	port    int
	nodes   bool // whether kubelets are going to join
	daemons *daemons
}

func (c *controlPlane) server() string {
	return "https://" + net.JoinHostPort(c.ip, strconv.Itoa(c.port))
}

// start returns a client when the API server is ready; the controllers are then starting.
func (c *controlPlane) start(ctx context.Context) (*kubernetes.Clientset, error) {
	began := time.Now()
	if err := c.issueIdentities(); err != nil {
		return nil, err
	}
	progress("starting etcd")
	if err := c.daemons.start(self(c.etcd()...), c.dir.logFile("etcd")); err != nil {
		return nil, err
	}
	progress("starting kube-apiserver")
	if err := c.daemons.start(c.program(c.apiserver()), c.dir.logFile("kube-apiserver")); err != nil {
		return nil, err
	}
	client, err := newClient(c.dir.kubeconfigOf("playground"))
	if err != nil {
		return nil, err
	}
	err = poll(ctx, startTimeout, "waiting for the API server", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	if err != nil {
		if ctx.Err() == nil {
			err = withLog(err, c.dir.logFile("kube-apiserver"))
		}
		return nil, err
	}
	progress("API server ready after %s", since(began))
	progress("starting kube-controller-manager")
	if err := c.daemons.start(c.program(c.controllerManager()), c.dir.logFile("kube-controller-manager")); err != nil {
		return nil, err
	}
	if c.nodes {
		progress("starting kube-scheduler")
		if err := c.daemons.start(self(c.scheduler()...), c.dir.logFile("kube-scheduler")); err != nil {
			return nil, err
		}
	}
	return client, nil
}

// program is a component, of the version that was asked for.
func (c *controlPlane) program(args []string) *exec.Cmd {
	cmd := self(args...)
	if c.config.ControlPlane != "" {
		cmd.Path = c.config.ControlPlane
	}
	return cmd
}

// issueIdentities writes the keys and certificates of the control plane. The certificate authority is there already.
func (c *controlPlane) issueIdentities() error {
	a, err := loadAuthority(c.dir)
	if err != nil {
		return err
	}
	err = a.issue("kube-apiserver", cert.Config{CommonName: "kube-apiserver", AltNames: cert.AltNames{
		// "localhost" and 127.0.0.1 are for the clients outside, the others for pods.
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(apiServiceIP), net.ParseIP(c.ip)},
	}})
	if err != nil {
		return err
	}
	masters := []string{"system:masters"}
	for name, id := range map[string]cert.Config{
		"sa":             {CommonName: "service-accounts"}, // Only its key is used.
		"kubelet-client": {CommonName: "kube-apiserver-kubelet-client", Organization: masters},
	} {
		if err := a.issue(name, id); err != nil {
			return err
		}
	}
	for name, id := range map[string]cert.Config{
		"playground":              {CommonName: "playground", Organization: masters},
		"kube-controller-manager": {CommonName: "system:kube-controller-manager", Organization: masters},
		"kube-scheduler":          {CommonName: "system:kube-scheduler"},
		"kube-proxy":              {CommonName: "system:kube-proxy"},
	} {
		if err := a.issueClient(name, c.server(), id); err != nil {
			return err
		}
	}
	return nil
}

// etcd listens on a unix socket: nobody else can have taken its port.
func (c *controlPlane) etcd() []string {
	return []string{"etcd",
		"--data-dir", c.dir.path("etcd"),
		"--listen-client-urls", c.etcdURL(),
		"--advertise-client-urls", "http://localhost:2379", // a socket's path is not accepted; nobody asks for it
		"--listen-peer-urls", "unix://" + c.dir.path("peer.sock"),
		"--unsafe-no-fsync", // the data is thrown away at the end anyway
		"--quota-backend-bytes", strconv.Itoa(8 << 30),
		"--log-level", "warn",
	}
}

func (c *controlPlane) etcdURL() string { return "unix://" + c.dir.path("etcd.sock") }

func (c *controlPlane) apiserver() []string {
	pki := func(name string) string { return c.dir.path("pki", name) }
	args := []string{"kube-apiserver",
		"--etcd-servers", c.etcdURL(),
		"--bind-address", c.ip, "--secure-port", strconv.Itoa(c.port), "--advertise-address", c.ip,
		"--tls-cert-file", pki("kube-apiserver.crt"), "--tls-private-key-file", pki("kube-apiserver.key"),
		"--client-ca-file", pki("ca.crt"), "--token-auth-file", pki("tokens.csv"),
		"--kubelet-client-certificate", pki("kubelet-client.crt"), "--kubelet-client-key", pki("kubelet-client.key"),
		// By default names come first, which nothing here resolves: logs and exec would fail.
		"--kubelet-preferred-address-types", "InternalIP",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--service-account-key-file", pki("sa.key"), "--service-account-signing-key-file", pki("sa.key"),
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-cluster-ip-range", c.config.cidrs(serviceCIDR, serviceCIDR6),
		"--allow-privileged",
		"--max-requests-inflight", "3000", "--max-mutating-requests-inflight", "1000",
	}
	if !c.nodes {
		// The port is held by `up`, see reservePort; and a loopback address is no valid endpoint of a Service.
		args = append(args, "--permit-port-sharing", "--endpoint-reconciler-type", "none")
	}
	if c.config.Audit {
		args = append(args, "--audit-policy-file", c.dir.path("audit-policy.yaml"), "--audit-log-path",
			c.dir.logFile("audit"),
			"--audit-log-format", "json", "--audit-log-mode", "blocking")
	}
	return append(args, c.config.APIServerFlags...)
}

func (c *controlPlane) controllerManager() []string {
	args := []string{"kube-controller-manager",
		"--kubeconfig", c.dir.kubeconfigOf("kube-controller-manager"), "--leader-elect=false", "--secure-port", "0",
		"--service-account-private-key-file", c.dir.path("pki", "sa.key"), "--root-ca-file",
		c.dir.path("pki", "ca.crt"),
		"--cluster-signing-cert-file", c.dir.path("pki", "ca.crt"), "--cluster-signing-key-file",
		c.dir.path("pki", "ca.key"),
		"--service-cluster-ip-range", c.config.cidrs(serviceCIDR, serviceCIDR6),
		"--kube-api-qps", "1000", "--kube-api-burst", "2000",
		"--node-monitor-period", "1s", "--node-monitor-grace-period", nodeMonitorGracePeriod,
		"--flex-volume-plugin-dir", c.dir.path("flexvolume"), // the default is outside the playground's directory
	}
	if c.config.Controllers != "" {
		args = append(args, "--controllers", c.config.Controllers)
	}
	return args
}

func (c *controlPlane) scheduler() []string {
	return []string{"kube-scheduler", "--kubeconfig", c.dir.kubeconfigOf("kube-scheduler"), "--leader-elect=false",
		"--secure-port", "0"}
}

// newClient is a client for the playground's own purposes, recognisable as such in an audit log.
func newClient(kubeconfig string) (*kubernetes.Clientset, error) {
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", kubeconfig, err)
	}
	c.UserAgent, c.QPS, c.Timeout = "playground", -1, 0
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", c.Host, err)
	}
	return client, nil
}
