package main

import (
	"context"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	utilnet "k8s.io/utils/net"
)

// routeProtocol marks the routes to pods, so that no other route is ever removed.
const routeProtocol = 99

// followRoutes keeps a route to the pods of every node, as the route controller of a cloud would: a Node that is
// deleted and registers again may get other pod addresses. A failure goes to fail.
func followRoutes(ctx context.Context, client kubernetes.Interface, fail func(error)) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Nodes()
	set := func() {
		objects, err := informer.Lister().List(labels.Everything())
		if err == nil {
			err = setRoutes(wantedRoutes(objects))
		}
		if err != nil {
			fail(err)
		}
	}
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { set() },
		UpdateFunc: func(any, any) { set() },
		DeleteFunc: func(any) { set() },
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	factory.Start(ctx.Done())
	return nil
}

// wantedRoutes are the pod networks and the addresses of the nodes that have them.
func wantedRoutes(objects []*corev1.Node) map[string]net.IP {
	wanted := map[string]net.IP{}
	for _, o := range objects {
		for _, a := range o.Status.Addresses {
			for _, cidr := range o.Spec.PodCIDRs {
				if ip := net.ParseIP(a.Address); a.Type == corev1.NodeInternalIP && ip != nil &&
					utilnet.IsIPv6CIDRString(cidr) == utilnet.IsIPv6(ip) {
					wanted[cidr] = ip
				}
			}
		}
	}
	return wanted
}

// setRoutes makes the routes marked as ours the wanted ones.
func setRoutes(wanted map[string]net.IP) error {
	there, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol},
		netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return fmt.Errorf("listing routes: %w", err)
	}
	for _, r := range there {
		if _, ok := wanted[r.Dst.String()]; ok {
			continue
		}
		if err := netlink.RouteDel(&r); err != nil {
			return fmt.Errorf("removing the route to %s: %w", r.Dst, err)
		}
	}
	for cidr, gateway := range wanted {
		_, dst, err := net.ParseCIDR(cidr)
		if err != nil {
			return fmt.Errorf("parsing a pod network: %w", err)
		}
		if err := netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: gateway, Protocol: routeProtocol}); err != nil {
			return fmt.Errorf("setting the route to %s by %s: %w", cidr, gateway, err)
		}
	}
	return nil
}
