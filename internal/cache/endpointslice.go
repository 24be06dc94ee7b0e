package cache

import (
	"slices"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// EndpointSlice keeps the fields that are read from the EndpointSlice of a generated Service.
type EndpointSlice struct {
	plan.Identity
	Service      string                // name of the Service
	localService unique.Handle[string] // from the label that the slice has from its Service
	Ready        bool                  // at least one endpoint is ready
	ports        unique.Handle[string] // see plan.PortsOf
}

func trimEndpointSlice(full *discoveryv1.EndpointSlice) (*EndpointSlice, error) {
	return &EndpointSlice{
		Identity:     plan.IdentityOf(full),
		Service:      full.Labels[discoveryv1.LabelServiceName],
		localService: unique.Make(full.Labels[v1alpha1.OwnerLabelKey]),
		Ready: slices.ContainsFunc(full.Endpoints, func(e discoveryv1.Endpoint) bool {
			return plan.IsReady(&e)
		}),
		ports: plan.PortsOf(full),
	}, nil
}

// LocalService returns the key of the LocalService that the EndpointSlice claims to belong to.
func (s *EndpointSlice) LocalService() types.NamespacedName {
	return types.NamespacedName{Namespace: s.GetNamespace(), Name: s.localService.Value()}
}

// Same reports whether two states differ only in the resource version.
func (s *EndpointSlice) Same(other *EndpointSlice) bool {
	a := *s
	a.Identity = other.Identity
	return a == *other
}
