package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// request is what was asked of the API server, so that its failure can be told.
type request struct {
	verb      string
	resource  schema.GroupVersionResource
	namespace string // "" for resources without
	name      string // "" for lists
}

func (r request) String() string {
	what := r.verb + " " + r.resource.GroupResource().String()
	switch {
	case r.name != "" && r.namespace != "":
		return what + " " + r.namespace + "/" + r.name
	case r.name != "":
		return what + " " + r.name
	case r.namespace != "":
		return what + " in namespace " + r.namespace
	}
	return what
}

// failed says what was attempted, why it failed, and what to do.
func (r request) failed(err error) error {
	_, fromServer := errors.AsType[*apierrors.StatusError](err)
	switch {
	case apierrors.IsNotFound(err) && r.resource.Group == v1alpha1.GroupName && isUnknownResource(err):
		return fmt.Errorf("%s: the cluster does not know LocalServices (%s): install them with `kubectl create "+
			"-f artifacts/examples/crd.yaml`: %w",
			r, r.resource.GroupVersion(), err)
	case apierrors.IsNotFound(err) && r.resource == localServicesResource:
		return fmt.Errorf("%s: there is none of that name: `kubectl get localservices -n %s` lists those that "+
			"there are, -n chooses another namespace: %w", r, r.namespace, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: you lack the permission: ask for it, and check with `%s`: %w", r, r.canI(), err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the API server does not accept your credentials: log in again, or check `kubectl "+
			"config view --minify`: %w", r, err)
	case !fromServer:
		return fmt.Errorf("%s: the cluster cannot be reached: check that it runs, and the address in `kubectl "+
			"config view --minify`: %w", r, err)
	}
	return fmt.Errorf("%s: %w", r, err)
}

func (r request) canI() string {
	command := fmt.Sprintf("kubectl auth can-i %s %s", r.verb, r.resource.GroupResource())
	if r.namespace != "" {
		command += " -n " + r.namespace
	}
	return command
}

// isUnknownResource says whether it was not an object that was not found, but its resource: then the answer has no
// Status object, and the client makes one up.
func isUnknownResource(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && status.ErrStatus.Details != nil && slices.ContainsFunc(status.ErrStatus.Details.Causes,
		func(c metav1.StatusCause) bool {
			return c.Type == metav1.CauseTypeUnexpectedServerResponse
		})
}

var errNoCluster = errors.New("there is no cluster to ask: set KUBECONFIG or --kubeconfig to a file that names one")

// configFailed says what to do if there is no usable kubeconfig.
func configFailed(err error) error {
	if clientcmd.IsEmptyConfig(err) {
		return errNoCluster
	}
	return fmt.Errorf("read the kubeconfig: %w", err)
}

// checkHost finds a configuration that comes from nowhere: without a kubeconfig, the client library would try an
// address at which no API server has listened for years.
func (p *plugin) checkHost(config *rest.Config) error {
	raw, err := p.config.ToRawKubeConfigLoader().RawConfig()
	if err == nil && len(raw.Clusters) == 0 && *p.config.APIServer == "" && os.Getenv("KUBERNETES_MASTER") == "" &&
		config.Host == "http://localhost:8080" {
		return errNoCluster
	}
	return nil
}
