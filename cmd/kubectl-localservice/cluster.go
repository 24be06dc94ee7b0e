package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/ptr"

	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

// factory makes the clients that the flags ask for, and knows where to print.
type factory struct {
	genericiooptions.IOStreams
	config  *genericclioptions.ConfigFlags
	connect func() (*cluster, error) // Tests replace it.
}

func newFactory(streams genericiooptions.IOStreams) *factory {
	f := &factory{IOStreams: streams, config: genericclioptions.NewConfigFlags(true)}
	f.connect = f.newCluster
	return f
}

// cluster holds the clients that the commands read with.
type cluster struct {
	namespace     string
	kubectl       string // the command that works with the same cluster
	kube          kubernetes.Interface
	localServices clientset.Interface
	forward       forwardFunc // Tests replace it.
}

// newCluster makes clients that are not throttled: they send few requests, and the API server has its own fairness.
func (f *factory) newCluster() (*cluster, error) {
	namespace, _, namespaceErr := f.config.ToRawKubeConfigLoader().Namespace()
	config, err := f.config.ToRESTConfig()
	if err := cmp.Or(namespaceErr, err); err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1
	localServices, localServicesErr := clientset.NewForConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err := kubernetes.NewForConfig(config)
	return &cluster{namespace, f.kubectl(), kube, localServices, newForward(config, kube)}, cmp.Or(localServicesErr, err)
}

// flagsOfCluster returns those flags of this command that choose the cluster.
func (f *factory) flagsOfCluster() (flags []string) {
	for _, flag := range []struct {
		name  string
		value *string
	}{{"--kubeconfig", f.config.KubeConfig}, {"--context", f.config.Context}, {"--cluster", f.config.ClusterName},
		{"--server", f.config.APIServer}, {"--user", f.config.AuthInfoName}} {
		if value := ptr.Deref(flag.value, ""); value != "" {
			flags = append(flags, flag.name+"="+value)
		}
	}
	return flags
}

// plain matches a word that a shell takes as it is.
var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

const kubectlCommand = "kubectl"

// kubectl returns the command that works with the same cluster, for a shell.
func (f *factory) kubectl() string {
	command := kubectlCommand
	for _, flag := range f.flagsOfCluster() {
		if !plain.MatchString(flag) {
			flag = "'" + strings.ReplaceAll(flag, "'", `'\''`) + "'"
		}
		command += " " + flag
	}
	return command
}

// forwardFunc forwards a local port to a port of a pod until ctx is done, and returns the local address.
type forwardFunc func(ctx context.Context, namespace, pod string, port int32) (address string, err error)

// newForward connects as kubectl does: by websocket, or by SPDY if a proxy on the way does not support websockets, or
// the user may create pods/portforward, but not get it. A failed connection is closed, and not logged.
func newForward(config *rest.Config, kube kubernetes.Interface) forwardFunc {
	return func(ctx context.Context, namespace, pod string, port int32) (string, error) {
		url := kube.CoreV1().RESTClient().Post().Resource(string(corev1.ResourcePods)).Namespace(namespace).Name(pod).
			SubResource("portforward").URL()
		transport, upgrader, err := spdy.RoundTripperFor(config)
		byWebsocket, webErr := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
		if err := errors.Join(err, webErr); err != nil {
			return "", err
		}
		bySPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
		dialer := portforward.NewFallbackDialerForStreaming(byWebsocket, bySPDY, func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		})
		ready, failed := make(chan struct{}), make(chan error, 1)
		silent := klog.NewContext(ctx, logr.Discard())
		forwarder, err := portforward.NewOnAddressesForStreamingWithContext(silent, dialer, []string{"127.0.0.1"},
			[]string{fmt.Sprintf("0:%d", port)}, ready, io.Discard, io.Discard)
		if err != nil {
			return "", err
		}
		go func() { failed <- forwarder.ForwardPorts() }()
		select {
		case <-ready:
		case err = <-failed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return "", err
		}
		ports, err := forwarder.GetPorts()
		if err != nil {
			return "", err
		}
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), nil
	}
}

// completion returns a function for the Tab key, which is no place for errors: they are in cobra's debug log.
func (f *factory) completion(find func(context.Context, *cluster, []string) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (choices []string, _ cobra.ShellCompDirective) {
		c, err := f.connect()
		if err == nil {
			choices, err = find(cmd.Context(), c, args)
		}
		if err != nil {
			cobra.CompDebugln(err.Error(), true)
		}
		return choices, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeName returns the names of the LocalServices that are not among the arguments yet.
func completeName(ctx context.Context, c *cluster, args []string) (names []string, err error) {
	all, err := c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && i < len(all.Items); i++ {
		if !slices.Contains(args, all.Items[i].Name) {
			names = append(names, all.Items[i].Name)
		}
	}
	return names, err
}

func completeNamespace(ctx context.Context, c *cluster, _ []string) (names []string, err error) {
	all, err := c.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && i < len(all.Items); i++ {
		names = append(names, all.Items[i].Name)
	}
	return names, err
}

// isUnknownResource reports whether the resource itself is not found: then the response has no Status.
func isUnknownResource(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// explainError says what to do about an error that any request may return.
func explainError(err error) error {
	_, unreachable := errors.AsType[*url.Error](err)
	switch {
	case isUnknownResource(err):
		return fmt.Errorf("the cluster does not know LocalServices: install local-service-controller, by install.yaml of "+
			"a release or its Helm chart: %w", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("ask for the permission: %w", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept your credentials: log in again, or check `kubectl config "+
			"view --minify`: %w", err)
	case unreachable:
		return fmt.Errorf("the cluster cannot be reached: check that it runs, and that $KUBECONFIG or --kubeconfig "+
			"names a file with its address: %w", err)
	}
	return err
}
