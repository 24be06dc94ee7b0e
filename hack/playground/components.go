package main

import (
	"context"

	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components are the programs in this binary, by the name they are called by. Each gets its command line, the name
// included, and returns the exit code.
var components = map[string]func(args []string) int{
	"etcd":                    func(args []string) int { etcdmain.Main(args); return 0 },
	"coredns":                 func([]string) int { coremain.Run(); return 0 },
	"kube-apiserver":          cobraComponent(apiserver.NewAPIServerCommand),
	"kube-controller-manager": cobraComponent(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          cobraComponent(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              cobraComponent(proxy.NewProxyCommand),
	"kubelet": cobraComponent(func() *cobra.Command {
		return kubelet.NewKubeletCommand(context.Background())
	}),
	kubectlApplet: runKubectl,

	// The playground's own processes inside the namespaces.
	sandboxApplet: sandboxMain,
	nodeApplet:    nodeMain,
	insideApplet:  insideMain,
	probeApplet:   probeMain,
}

// Names that nobody types.
const (
	sandboxApplet = "playground-sandbox"
	nodeApplet    = "playground-node"
	insideApplet  = "playground-inside"
	probeApplet   = "playground-probe"
)
