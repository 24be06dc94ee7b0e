package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// floorClients are plain parallel clients, as many as the controller writes at the same time: no throttle, protobuf,
// a connection for each. They are what nobody can be faster than with the same number of requests under way.
func (b *bench) floorClients(c *cluster) ([]kubernetes.Interface, error) {
	var clients []kubernetes.Interface
	var errs []error
	for range b.opts.writeConcurrency {
		config := c.config(floorAgent)
		if !b.opts.oneConnection {
			config.Dial = new(net.Dialer).DialContext // Clients that dial for themselves share no connection.
		}
		client, err := kubernetes.NewForConfig(config)
		clients, errs = append(clients, client), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("make bare clients: %w", err)
	}
	return clients, nil
}

// floorCreate creates Services, and returns how long that took at the API server.
func (b *bench) floorCreate(ctx context.Context, c *cluster, services []*corev1.Service) (time.Duration, error) {
	return b.floor(ctx, c, len(services), func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := client.CoreV1().Services(services[i].Namespace).Create(ctx, services[i], metav1.CreateOptions{FieldManager: fieldManager})
		return err
	})
}

// floorLabel labels pods as the controller does, and returns how long that took at the API server.
func (b *bench) floorLabel(ctx context.Context, c *cluster, pods []podRef) (time.Duration, error) {
	return b.floor(ctx, c, len(pods), func(ctx context.Context, client kubernetes.Interface, i int) error {
		_, err := client.CoreV1().Pods(pods[i].namespace).Patch(ctx, pods[i].name, types.MergePatchType, pods[i].labelPatch(), metav1.PatchOptions{FieldManager: fieldManager})
		return err
	})
}

// floor does n requests and returns how long that took at the API server.
func (b *bench) floor(ctx context.Context, c *cluster, n int, do func(ctx context.Context, client kubernetes.Interface, i int) error) (time.Duration, error) {
	clients, err := b.floorClients(c)
	if err != nil {
		return 0, err
	}
	for _, client := range clients { // The controller, too, is connected when its work begins.
		if _, err := client.Discovery().ServerVersion(); err != nil {
			return 0, fmt.Errorf("connect bare clients: %w", err)
		}
	}
	mark, err := c.audit.mark()
	if err != nil {
		return 0, err
	}
	err = parallel(ctx, len(clients), n, func(ctx context.Context, worker, i int) error {
		return do(ctx, clients[worker], i)
	})
	if err != nil {
		return 0, fmt.Errorf("measure bare clients: %w", err)
	}
	requests, err := c.audit.since(mark)
	if err != nil {
		return 0, err
	}
	requests = requests.where(all(by(floorAgent), done))
	if len(requests) != n {
		return 0, fmt.Errorf("measure bare clients: the audit log has %d of their %d requests", len(requests), n)
	}
	return requests.span(), nil
}
