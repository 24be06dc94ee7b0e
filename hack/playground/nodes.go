package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/cert"
)

// nodes are the machines of the cluster, as seen from the sandbox: it can switch them on and off.
type nodes struct {
	*sandbox
	mu   sync.Mutex
	list []*node // in the order they were first started
}

// node is a machine. It keeps its address when it is switched off and on again.
type node struct {
	name    string
	ips     []net.IP                // that of IPv4 first
	link    string                  // the sandbox's end of the cable
	started time.Time               // last
	uid     types.UID               // of the Node object, once the node has been ready
	process *daemon                 // process 1 of the running node, nil if it is off
	failed  context.CancelCauseFunc // gets the reason why the node has ended by itself
}

// validateNodeName reports a name that cannot be a node's. Linux takes up to 64 characters as a host name.
func validateNodeName(name string) error {
	problems := validation.IsDNS1123Subdomain(name)
	if len(name) > 63 {
		problems = append(problems, "must be no more than 63 characters")
	}
	if len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a node: %s", name, strings.Join(problems, ", "))
	}
	return nil
}

func (n *nodes) find(name string) *node {
	i := slices.IndexFunc(n.list, func(m *node) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return n.list[i]
}

// add is start for a cluster that is in use: a node that fails before it is ready leaves the others running. It returns
// when the node is ready.
func (n *nodes) add(ctx context.Context, name string) error {
	ctx, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	if err := n.start(name, failed); err != nil {
		return err
	}
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.find(name).failed = n.cancel
	}()
	return n.waitReady(ctx, name)
}

// start switches a node on, a new one if there is none of that name. If it fails afterwards, failed gets the cause.
func (n *nodes) start(name string, failed context.CancelCauseFunc) error {
	if err := errors.Join(validateNodeName(name), n.dir.checkSocketPaths([]string{name})); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.find(name)
	if m == nil {
		ips, err := nodeIPs(len(n.list), n.config.DualStack)
		if err != nil {
			return err
		}
		m = &node{name: name, ips: ips, link: fmt.Sprintf("node%d", len(n.list))}
		if err := errors.Join(n.issueNode(name), routePods(ips)); err != nil {
			return err
		}
		n.list = append(n.list, m)
	}
	if m.process != nil {
		return fmt.Errorf("starting %s: the node is running already", name)
	}
	if err := os.MkdirAll(n.dir.staticPods(name), 0o700); err != nil {
		return fmt.Errorf("making the directory for static pods: %w", err)
	}
	m.failed = failed
	return n.boot(m)
}

// issueNode gives a node the credentials that a bootstrap token would get it elsewhere.
func (n *nodes) issueNode(name string) error {
	a, err := loadAuthority(n.dir)
	if err != nil {
		return err
	}
	return a.issueClient("node-"+name, n.cp.server(),
		cert.Config{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}})
}

func (n *nodes) boot(m *node) error {
	cmd := self(nodeApplet, string(n.dir), m.name, joined(m.ips))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: newNamespaces}
	m.started, m.uid = time.Now(), ""
	log := n.dir.logFile(m.name)
	process, err := startDaemon("node "+m.name, cmd, log)
	if err != nil {
		return err
	}
	if err := connectNode(m.link, m.ips[0], cmd.Process.Pid); err != nil {
		process.kill()
		return fmt.Errorf("connecting %s to the network: %w", m.name, err)
	}
	m.process = process
	go func() {
		<-process.done
		n.mu.Lock()
		defer n.mu.Unlock()
		if m.process != process {
			return // It was switched off.
		}
		reason := fmt.Errorf("node %s: %s", m.name, tail(log, 25)) // all that a node logs is why it failed
		if err := n.release(m); err != nil || !n.isDeleted(m) {
			m.failed(errors.Join(reason, err))
			return
		}
		progress("the Node %[1]s was deleted, so its processes have ended: `playground node start %[1]s` starts it again",
			m.name)
	}()
	return nil
}

// isDeleted returns whether somebody has deleted the Node object of a node that was ready. kube-proxy ends when it sees
// that, and the kubelet registers a node only when it starts: so the node is off until somebody starts it again.
func (n *nodes) isDeleted(m *node) bool {
	if m.uid == "" {
		return false
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	object, err := n.client.CoreV1().Nodes().Get(ctx, m.name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && object.UID != m.uid
}

// stop switches a node off: its processes get no chance to say goodbye to the API server.
func (n *nodes) stop(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.find(name)
	if m == nil || m.process == nil {
		return fmt.Errorf("stopping %s: no such node is running", name)
	}
	m.process.kill()
	return n.release(m)
}

// release takes back what a node had that is off now.
func (n *nodes) release(m *node) error {
	m.process = nil
	if err := os.Remove(n.dir.nodeSocket(m.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the socket of %s: %w", m.name, err)
	}
	// The kernel takes down the other end, and with it this one, some time after the last process has gone.
	return disconnectNode(m.link)
}

// waitReady returns when the node that was started last under that name is Ready and reaches Services.
func (n *nodes) waitReady(ctx context.Context, name string) error {
	n.mu.Lock()
	m := n.find(name)
	started := m.started
	n.mu.Unlock()
	var uid types.UID
	err := poll(ctx, startTimeout, "waiting for node "+name, func(ctx context.Context) error {
		object, err := n.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		uid = object.UID
		return readySince(object, started)
	})
	if err != nil && ctx.Err() == nil {
		return withLog(err, n.dir.logFile(name+"-kubelet"))
	} else if err != nil {
		return err
	}
	if err := n.waitFor(ctx, name, "services", "kube-proxy"); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	m.uid = uid
	return nil
}

// waitDNS returns when CoreDNS answers a client on the node.
func (n *nodes) waitDNS(ctx context.Context, name string) error {
	return n.waitFor(ctx, name, "dns", "containerd")
}

// waitFor polls one of the node's own checks; if that fails, log is likely to say why.
func (n *nodes) waitFor(ctx context.Context, name, check, log string) error {
	err := poll(ctx, startTimeout, fmt.Sprintf("waiting for %s on node %s", check, name),
		func(ctx context.Context) error {
			return call(ctx, n.dir.nodeSocket(name), "GET", "/ready/"+check)
		})
	if err != nil && ctx.Err() == nil {
		return withLog(err, n.dir.logFile(name+"-"+log))
	}
	return err
}

// readySince returns nil if a Node is ready and has said so since it was started, or why not.
func readySince(object *corev1.Node, started time.Time) error {
	for _, c := range object.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.LastHeartbeatTime.Time.Before(started.Truncate(time.Second)) {
			return errors.New("its kubelet has not reported since it was started")
		}
		if c.Status != corev1.ConditionTrue {
			return errors.New(c.Message)
		}
		return nil
	}
	return errors.New("its kubelet has not reported yet")
}
