package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// forwardHost is where a port-forward listens.
const forwardHost = "127.0.0.1"

// newForward returns the function for cluster.forward. It connects as kubectl does: by websocket, or by SPDY if a proxy
// on the way does not support websockets, or the user may create pods/portforward, but not get it. A failed connection
// is closed, and not logged.
func newForward(config *rest.Config, kube kubernetes.Interface) func(context.Context, string, string, int32) (string,
	error) {
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
		forwarder, err := portforward.NewOnAddressesForStreamingWithContext(silent, dialer, []string{forwardHost},
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
		return net.JoinHostPort(forwardHost, strconv.Itoa(int(ports[0].Local))), nil
	}
}
