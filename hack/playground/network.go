package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	bridgeName = "nodes"
	// The sandbox's own addresses on the bridge that all nodes hang on.
	gatewayIP  = "192.168.60.1"
	gatewayIP6 = "fd00:192:168:60::1"
)

// gateways are the addresses of the sandbox.
func gateways(dualStack bool) []net.IP {
	if dualStack {
		return []net.IP{net.ParseIP(gatewayIP), net.ParseIP(gatewayIP6)}
	}
	return []net.IP{net.ParseIP(gatewayIP)}
}

// nodeIPs returns the addresses of the i-th node, that of IPv4 first.
func nodeIPs(i int, dualStack bool) ([]net.IP, error) {
	const first, last = 11, 254
	if first+i > last {
		return nil, fmt.Errorf("there can be no more than %d nodes, the stopped ones included", last-first+1)
	}
	var ips []net.IP
	for _, ip := range gateways(dualStack) {
		ip[len(ip)-1] = byte(first + i)
		ips = append(ips, ip)
	}
	return ips, nil
}

// podSubnets are the ranges of the addresses of the pods on a node, that of IPv4 first. They have the number of the
// node's own address, so that they stay the same when its Node object is deleted and registers again.
func podSubnets(ips []net.IP) []string {
	number := ips[0][len(ips[0])-1]
	return []string{fmt.Sprintf("10.244.%d.0/24", number), fmt.Sprintf("fd00:10:244:%x::/64", number)}[:len(ips)]
}

// routePods makes the route to the pods of a node.
func routePods(ips []net.IP) error {
	for i, subnet := range podSubnets(ips) {
		_, destination, err := net.ParseCIDR(subnet)
		if err == nil {
			err = netlink.RouteReplace(&netlink.Route{Dst: destination, Gw: ips[i]})
		}
		if err != nil {
			return fmt.Errorf("setting the route to %s by %s: %w", subnet, ips[i], err)
		}
	}
	return nil
}

// hardwareAddr returns the MAC address for an IP address. With random ones, the bridge would take over one of its
// ports' and change it when a node is switched off, and a node would come back with another one: each time, the others
// would send to the address they remember for ten seconds or more.
func hardwareAddr(ip net.IP) net.HardwareAddr {
	return append(net.HardwareAddr{0x02, 0x00}, ip.To4()...) // 02: locally administered
}

// setUpGateway makes the network that the nodes hang on, and this namespace the router between their pods.
func setUpGateway(dualStack bool) error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName,
		HardwareAddr: hardwareAddr(net.ParseIP(gatewayIP))}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("making the nodes' bridge: %w", err)
	}
	if err := configureLink("lo"); err != nil {
		return err
	}
	if err := configureLink(bridgeName, gateways(dualStack)...); err != nil {
		return err
	}
	if err := forwardPackets(dualStack); err != nil {
		return err
	}
	for name, value := range map[string]string{
		// Nodes would keep what a redirect says for minutes, also after a pod network has moved to another node.
		"net/ipv4/conf/all/send_redirects":                "0",
		"net/ipv4/conf/" + bridgeName + "/send_redirects": "0",
	} {
		if err := setSysctl(name, value); err != nil {
			return err
		}
	}
	return nil
}

// forwardPackets makes this namespace a router.
func forwardPackets(dualStack bool) error {
	if dualStack {
		if err := setSysctl("net/ipv6/conf/all/forwarding", "1"); err != nil {
			return err
		}
	}
	return setSysctl("net/ipv4/ip_forward", "1")
}

func setSysctl(name, value string) error {
	if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
		return fmt.Errorf("setting a kernel parameter: %w", err)
	}
	return nil
}

// configureLink gives an interface of this namespace addresses, if any, and switches it on.
func configureLink(name string, ips ...net.IP) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding the interface %s: %w", name, err)
	}
	for _, ip := range ips {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}}
		if ip.To4() == nil {
			// It can be used at once: nobody else has it.
			addr = &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("giving the interface %s the address %s: %w", name, ip, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switching on the interface %s: %w", name, err)
	}
	return nil
}

// connectNode runs a cable from the bridge to eth0 of the namespace that the process is in, and that will have the
// address ip, of IPv4.
func connectNode(name string, ip net.IP, pid int) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("finding the nodes' bridge: %w", err)
	}
	cable := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
		PeerName:         "eth0",
		PeerHardwareAddr: hardwareAddr(ip),
		PeerNamespace:    netlink.NsPid(pid),
	}
	if err := netlink.LinkAdd(cable); err != nil {
		return fmt.Errorf("making the interfaces %s and eth0: %w", name, err)
	}
	return configureLink(name)
}

func disconnectNode(name string) error {
	link, err := netlink.LinkByName(name)
	if _, isGone := errors.AsType[netlink.LinkNotFoundError](err); isGone {
		return nil
	} else if err != nil {
		return fmt.Errorf("finding the interface %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("removing the interface %s: %w", name, err)
	}
	return nil
}
