package main

import (
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	bridgeName = "nodes"
	gatewayIP  = "192.168.60.1" // the sandbox's own address on the bridge that all nodes hang on
)

// nodeIP is the address of the i-th node.
func nodeIP(i int) (net.IP, error) {
	const first, last = 11, 254
	if first+i > last {
		return nil, fmt.Errorf("there can be no more than %d nodes, the stopped ones included", last-first+1)
	}
	return net.IPv4(192, 168, 60, byte(first+i)).To4(), nil
}

// hardwareAddr is the MAC address that goes with an IP address. With random ones, the bridge would take over one of its
// ports' and change it when a node is switched off, and a node would come back with another one: each time, the others
// would send to the address they remember for ten seconds or more.
func hardwareAddr(ip net.IP) net.HardwareAddr {
	return append(net.HardwareAddr{0x02, 0x00}, ip.To4()...) // 02: locally administered
}

// setUpGateway makes the network that the nodes hang on, and this namespace the router between their pods.
func setUpGateway() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName,
		HardwareAddr: hardwareAddr(net.ParseIP(gatewayIP))}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("making the nodes' bridge: %w", err)
	}
	if err := configureLink("lo", nil); err != nil {
		return err
	}
	if err := configureLink(bridgeName, net.ParseIP(gatewayIP)); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "1",
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

func setSysctl(name, value string) error {
	if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
		return fmt.Errorf("setting a kernel parameter: %w", err)
	}
	return nil
}

// configureLink gives an interface of this namespace an address, if any, and switches it on.
func configureLink(name string, ip net.IP) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding the interface %s: %w", name, err)
	}
	if ip != nil {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}}
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
// address ip.
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
	return configureLink(name, nil)
}

func disconnectNode(name string) error {
	link, err := netlink.LinkByName(name)
	if _, gone := err.(netlink.LinkNotFoundError); gone {
		return nil
	} else if err != nil {
		return fmt.Errorf("finding the interface %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && err != unix.ENODEV {
		return fmt.Errorf("removing the interface %s: %w", name, err)
	}
	return nil
}
