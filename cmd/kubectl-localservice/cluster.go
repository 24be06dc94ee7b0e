package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

// cluster holds the clients that the commands read with.
type cluster struct {
	namespace     string
	kube          kubernetes.Interface
	localServices clientset.Interface
	// forward forwards a local port to a port of a pod, until ctx is done, and returns the local address. Tests replace
	// it.
	forward func(ctx context.Context, namespace, pod string, port int32) (address string, err error)
}

// newCluster makes the clients that the flags ask for. They are not throttled: there are few requests, and the API
// server has its own priority and fairness.
func (p *plugin) newCluster() (*cluster, error) {
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1
	localServices, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err := kubernetes.NewForConfig(config)
	return &cluster{namespace, kube, localServices, newForward(config, kube)}, err
}

func (c *cluster) localService(ctx context.Context, name string) (*v1alpha1.LocalService, error) {
	ls, err := c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err = known(err); apierrors.IsNotFound(err) && !isUnknown(err) {
		return nil, fmt.Errorf("there is no LocalService %s/%s: `kubectl get localservices -n %s` lists those of "+
			"this namespace, -n chooses another one", c.namespace, name, c.namespace)
	}
	return ls, err
}

// isUnknown reports whether the resource itself is not found: then the response has no Status.
func isUnknown(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// known adds to an error that LocalServices are not installed, if that is the cause.
func known(err error) error {
	if isUnknown(err) {
		return fmt.Errorf("the cluster does not know LocalServices: install local-service-controller, by "+
			"install.yaml of a release or its Helm chart: %w", err)
	}
	return err
}
