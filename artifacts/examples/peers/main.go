// peers is an example of a program that finds its peers on the other nodes: the pods of a LocalService of mode
// Hostnames. EndpointSlices say on which nodes there are any, and package naming what these nodes are called.
//
//	NAMESPACE=default LOCALSERVICE=cache NODE=$(NODE_NAME) peers
//
// It may run anywhere in the cluster, and needs the permission to list EndpointSlices in the namespace.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, client, os.Getenv, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run prints the addresses of the peers. A program that stays would watch the EndpointSlices instead of listing them
// once, with an informer.
func run(ctx context.Context, client kubernetes.Interface, env func(string) string, out io.Writer) error {
	namespace, localService := env("NAMESPACE"), env("LOCALSERVICE")
	// With mode Services, each node has a Service, and all of their EndpointSlices have the label owner=<localservice>.
	list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + localService})
	if err != nil {
		return fmt.Errorf("list the EndpointSlices of LocalService %s/%s: %w", namespace, localService, err)
	}
	for _, peer := range peers(list.Items, namespace, localService, env("NODE")) {
		fmt.Fprintln(out, peer)
	}
	return nil
}

// peers returns <name>:<port> of each node with a ready pod, other than the own one.
func peers(endpointSlices []discoveryv1.EndpointSlice, namespace, localService, self string) []string {
	var found []string
	for i := range endpointSlices {
		slice := &endpointSlices[i]
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if !ready || endpoint.NodeName == nil || *endpoint.NodeName == self {
				continue
			}
			// With mode Services: naming.ServiceName(localService, *endpoint.NodeName) + "." + namespace + ".svc"
			host := naming.Hostname(*endpoint.NodeName) + "." + localService + "." + namespace + ".svc"
			for _, port := range slice.Ports {
				found = append(found, net.JoinHostPort(host, strconv.Itoa(int(*port.Port))))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found) // A node may have several pods, and a pod addresses of two families.
}
