package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// seedWorkers is how many transactions are under way, and seedBatch how many objects each holds: etcd takes no more.
	seedWorkers = 4
	seedBatch   = 128
)

// storageCodec encodes objects as the API server stores them.
var storageCodec = scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)

// seed puts n objects into etcd, past the API server, which learns of them through its watch: ten times as fast, and
// the result is the same, because the objects are copies of one that the API server has made.
func (c *cluster) seed(ctx context.Context, n int, object func(i int) (key string, obj runtime.Object)) error {
	batches := (n + seedBatch - 1) / seedBatch
	return parallel(ctx, seedWorkers, batches, func(ctx context.Context, _, batch int) error {
		var txn struct {
			Success []putOp `json:"success"`
		}
		for i := batch * seedBatch; i < min(n, (batch+1)*seedBatch); i++ {
			key, obj := object(i)
			value, err := runtime.Encode(storageCodec, obj)
			if err != nil {
				return fmt.Errorf("encode %s for etcd: %w", key, err)
			}
			txn.Success = append(txn.Success, putOp{put{Key: []byte("/registry/" + key), Value: value}})
		}
		return c.commit(ctx, txn)
	})
}

// putOp is an operation of an etcd transaction as its HTTP API wants it.
type putOp struct {
	Put put `json:"requestPut"`
}

type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func (c *cluster) commit(ctx context.Context, txn any) error {
	body, err := json.Marshal(txn)
	if err != nil {
		return fmt.Errorf("encode an etcd transaction: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://etcd/v3/kv/txn", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("put objects into etcd: %w", err)
	}
	response, err := c.etcd.Do(request)
	if err != nil {
		return fmt.Errorf("put objects into etcd: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("put objects into etcd: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("put objects into etcd: %s: %s", response.Status, answer)
	}
	return nil
}
