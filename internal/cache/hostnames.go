package cache

import (
	"compress/flate"
	"errors"
	"io"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/localservice-dev/local-service-controller/internal/plan"
)

// trimHostnameSlice packs the addresses of an EndpointSlice that Kubernetes manages. Those of a copy are not read.
func trimHostnameSlice(full *discoveryv1.EndpointSlice) (*plan.EndpointSlice, error) {
	s := plan.SliceFromAPI(full)
	s.Get = nil
	if s.Manager.Value() == plan.KubernetesSliceManager {
		packed := pack(full)
		s.Get = func() *discoveryv1.EndpointSlice { return unpack(packed) }
	}
	return s, nil
}

func unpack(packed string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{}
	encoded, err := io.ReadAll(flate.NewReader(strings.NewReader(packed)))
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
