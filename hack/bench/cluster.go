package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// auditLogMegabytes keeps the API server from rotating its audit log: every request must be found in it.
const auditLogMegabytes = "16384"

const serviceAccountTimeout = 30 * time.Second

// cluster is a control plane, with clients to load it.
type cluster struct {
	*framework.Cluster

	audit         *auditLog
	kube          kubernetes.Interface
	localServices clientset.Interface
	etcd          *http.Client
}

// withCluster calls use with a new control plane, and stops it afterwards. A smoke run has only one, for all rows.
func (b *bench) withCluster(ctx context.Context, use func(c *cluster) error) error {
	if b.shared != nil {
		return use(b.shared)
	}
	c, err := b.startCluster(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(c), c.Stop())
}

func (b *bench) startCluster(ctx context.Context) (*cluster, error) {
	running, err := framework.StartCluster(ctx, framework.ClusterOptions{ControlPlaneOnly: true, Args: []string{
		"--controllers", b.opts.controllers,
		"--apiserver-flag=--audit-log-maxsize=" + auditLogMegabytes,
	}})
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	dir := filepath.Dir(running.Kubeconfig)
	c := &cluster{
		Cluster: running,
		audit:   &auditLog{path: filepath.Join(dir, "logs", "audit.log")},
		etcd: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: seedWorkers,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "etcd.sock"))
			},
		}},
	}
	var err1, err2 error
	c.kube, err1 = kubernetes.NewForConfig(c.config(loadAgent))
	jsonConfig := c.config(loadAgent)
	jsonConfig.ContentType = runtime.ContentTypeJSON // Custom resources have no other encoding.
	c.localServices, err2 = clientset.NewForConfig(jsonConfig)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(fmt.Errorf("make clients: %w", err), c.Stop())
	}
	return c, nil
}

// config is for clients that are not throttled.
func (c *cluster) config(agent string) *rest.Config {
	config := rest.CopyConfig(c.Config)
	config.UserAgent, config.QPS = agent, -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// createNamespace creates a namespace that pods can be created in.
func (c *cluster) createNamespace(ctx context.Context, name string) error {
	_, err := c.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, auditPollInterval, serviceAccountTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := c.kube.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the service account of namespace %s: %w", name, err)
	}
	return nil
}
