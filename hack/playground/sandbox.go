package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

//go:embed config/dns.yaml
var dnsManifests string

// apiPort is where the API server listens inside, on gatewayIP.
const apiPort = 6443

// sandbox is the inside of a playground: the control plane, the network that the nodes hang on, and the nodes.
type sandbox struct {
	dir     workdir
	config  config
	cancel  context.CancelCauseFunc
	daemons *daemons
	cp      *controlPlane
	client  *kubernetes.Clientset
	nodes   *nodes
}

// sandboxMain runs inside the namespaces that `up` made, until it fails or is killed. It inherits the socket that the
// API server's clients outside connect to, and a pipe for messages to `up`.
func sandboxMain(args []string) int {
	report := json.NewEncoder(os.NewFile(4, "messages"))
	dir := workdir(args[1])
	err := func() error {
		l, err := net.FileListener(os.NewFile(3, "listener"))
		if err != nil {
			return fmt.Errorf("taking over the listening socket: %w", err)
		}
		c, err := dir.readConfig()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		s := &sandbox{dir: dir, config: c, cancel: cancel, daemons: &daemons{cancel: cancel}}
		if err := s.start(ctx, l); err != nil {
			return err
		}
		if err := report.Encode(message{Ready: true}); err != nil {
			return fmt.Errorf("reporting that all is ready: %w", err)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}()
	_ = report.Encode(message{Error: err.Error()}) // fails only if there is no receiver
	return 1
}

// start returns when the cluster is ready for use.
func (s *sandbox) start(ctx context.Context, outside net.Listener) error {
	began := time.Now()
	if err := setUpGateway(s.config.DualStack); err != nil {
		return err
	}
	s.cp = &controlPlane{dir: s.dir, config: s.config, ip: gatewayIP, port: apiPort, nodes: true, daemons: s.daemons}
	var err error
	if s.client, err = s.cp.start(ctx); err != nil {
		return err
	}
	go forward(outside, net.JoinHostPort(gatewayIP, fmt.Sprint(apiPort)))
	s.nodes = &nodes{sandbox: s}
	for _, n := range s.config.Nodes {
		progress("starting node %s", n)
		if err := s.nodes.start(n, s.cancel); err != nil {
			return err
		}
	}
	if err := s.serve(); err != nil {
		return err
	}
	progress("starting CoreDNS")
	if err := s.apply(ctx, dnsManifests); err != nil {
		return err
	}
	for _, n := range s.config.Nodes {
		if err := s.nodes.waitReady(ctx, n); err != nil {
			return err
		}
	}
	progress("nodes ready after %s", since(began))
	for _, n := range s.config.Nodes {
		if err := s.nodes.waitDNS(ctx, n); err != nil {
			return err
		}
	}
	if err := waitForServiceAccount(ctx, s.client, s.config.Controllers); err != nil {
		return err
	}
	progress("cluster DNS answers on all nodes after %s", since(began))
	return nil
}

// apply creates what the manifests say, as the playground's own client.
func (s *sandbox) apply(ctx context.Context, manifests string) error {
	kubectl := self(kubectlApplet, "create", "--validate=false", "-f", "-")
	kubectl.Env = append(kubectl.Env, "KUBECONFIG="+s.dir.kubeconfigOf("playground"))
	kubectl.Stdin = strings.NewReader(manifests)
	var output strings.Builder
	kubectl.Stdout, kubectl.Stderr = &output, &output
	wait, err := startChild(kubectl)
	if err != nil {
		return fmt.Errorf("starting kubectl: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- wait() }()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("creating the cluster DNS: %w: %s", err, output.String())
		}
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), kubectl.Process.Kill())
	}
}
