package cache

import (
	"compress/flate"
	"errors"
	"io"
	"strings"
	"sync"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// HostnameSlice keeps the fields that are read from an EndpointSlice that mode Hostnames copies, or from a copy. It is
// a plan.EndpointSlice.
type HostnameSlice struct {
	plan.Identity
	uid          types.UID
	controller   unique.Handle[plan.Controller]
	manager      unique.Handle[string]
	localService unique.Handle[string]
	sum          plan.SliceSum
	ports        unique.Handle[string]   // see portsOf
	labels       unique.Handle[Labels]   // of a copy; others are not read
	applied      unique.Handle[string]   // the record of labels from spec.serviceMetadata, of a copy
	hostnames    []unique.Handle[string] // those with a ready endpoint, of a copy
	packed       string                  // the addresses as compressed protobuf; empty for a copy
}

func trimHostnameSlice(full *discoveryv1.EndpointSlice) (*HostnameSlice, error) {
	controller := plan.ControllerOf(full)
	manager := full.Labels[discoveryv1.LabelManagedBy]
	s := &HostnameSlice{
		Identity:     plan.IdentityOf(full),
		uid:          full.UID,
		controller:   unique.Make(controller),
		manager:      unique.Make(manager),
		localService: unique.Make(full.Labels[v1alpha1.OwnerLabelKey]),
		sum:          plan.SumOf(full),
		ports:        portsOf(full),
		labels:       unique.Make(Labels("")),
		applied:      unique.Make(""),
	}
	if manager == plan.KubernetesSliceManager {
		s.packed = pack(full)
		return s, nil
	}
	s.localService = unique.Make(plan.LocalServiceOfCopy(full))
	for _, hostname := range plan.ReadyHostnames(full) {
		s.hostnames = append(s.hostnames, unique.Make(hostname))
	}
	s.labels = unique.Make(labelsOf(full.Labels))
	s.applied = unique.Make(full.Annotations[v1alpha1.AppliedMetadataAnnotationKey])
	s.sum.Endpoints = nil
	return s, nil
}

// LocalService returns the key of the LocalService that the EndpointSlice claims to belong to.
func (s *HostnameSlice) LocalService() types.NamespacedName {
	return types.NamespacedName{Namespace: s.GetNamespace(), Name: s.localService.Value()}
}

// GetUID returns the UID of the EndpointSlice.
func (s *HostnameSlice) GetUID() types.UID { return s.uid }

// Controller returns the object that controls the EndpointSlice, the zero value if none does.
func (s *HostnameSlice) Controller() plan.Controller { return s.controller.Value() }

// Manager returns who manages the EndpointSlice, according to its label.
func (s *HostnameSlice) Manager() string { return s.manager.Value() }

// Metadata returns the labels of a copy, and the record of those that come from spec.serviceMetadata.
func (s *HostnameSlice) Metadata() (plan.Labels, string) { return s.labels.Value(), s.applied.Value() }

// ReadyHostnames returns the hostnames that a copy publishes with a ready endpoint.
func (s *HostnameSlice) ReadyHostnames() []string {
	hostnames := make([]string, len(s.hostnames))
	for i, hostname := range s.hostnames {
		hostnames[i] = hostname.Value()
	}
	return hostnames
}

// Sum returns the sum of the content.
func (s *HostnameSlice) Sum() plan.SliceSum { return s.sum }

// Get unpacks the addresses of an EndpointSlice that Kubernetes manages.
func (s *HostnameSlice) Get() *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{}
	encoded, err := io.ReadAll(flate.NewReader(strings.NewReader(s.packed)))
	if err == nil {
		err = out.Unmarshal(encoded)
	}
	if err != nil {
		panic(err) // It was packed by pack.
	}
	return out
}

// packers are reused: each takes a megabyte, and making one takes longer than using it.
var packers = sync.Pool{New: func() any {
	packer, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic(err) // The level exists.
	}
	return packer
}}

// pack keeps the addresses in a third of the memory: endpoints have most of their text in common.
func pack(full *discoveryv1.EndpointSlice) string {
	content := discoveryv1.EndpointSlice{AddressType: full.AddressType, Endpoints: full.Endpoints, Ports: full.Ports}
	encoded, err := content.Marshal()
	packer := packers.Get().(*flate.Writer)
	defer packers.Put(packer)
	var packed strings.Builder
	packer.Reset(&packed)
	_, writeErr := packer.Write(encoded)
	if err := errors.Join(err, writeErr, packer.Close()); err != nil {
		panic(err) // It has been decoded, and is packed in memory.
	}
	return strings.Clone(packed.String()) // Clone drops the spare capacity.
}

// Same reports whether two states differ only in the resource version.
func (s *HostnameSlice) Same(other *HostnameSlice) bool {
	return s.uid == other.uid && s.controller == other.controller && s.manager == other.manager &&
		s.localService == other.localService && s.labels == other.labels && s.applied == other.applied &&
		s.sum.Same(other.sum)
}
