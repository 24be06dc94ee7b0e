package main

import (
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"time"
)

// distances are the times that a request and its answer are on their way: API servers are on other machines, and etcd
// and admission webhooks take their time, too.
var distances = []time.Duration{0, 20 * time.Millisecond, 80 * time.Millisecond}

// distances returns those to measure from.
func (b *bench) distances() []time.Duration {
	if b.opts.smoke {
		return distances[1:2] // The others work alike.
	}
	return distances
}

// from calls use while bare clients and the controller are at a distance from the API server.
func (s *scene) from(distance time.Duration, use func()) {
	if distance == 0 {
		use()
		return
	}
	target := try(url.Parse(s.Config.Host))
	listener := try(net.Listen("tcp4", "127.0.0.1:0"))
	r := &relay{target: target.Host, delay: distance / 2}
	r.running.Go(func() { r.serve(listener) })
	s.address = "https://" + listener.Addr().String()
	defer func() {
		s.address = ""
		s.note(listener.Close())
		r.running.Wait()
	}()
	use()
}

// relay forwards connections, and delivers what it gets after a delay in each direction.
type relay struct {
	target  string
	delay   time.Duration
	running sync.WaitGroup
}

func (r *relay) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // Closed.
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.running.Go(func() { r.forward(client, server) })
		r.running.Go(func() { r.forward(server, client) })
	}
}

// part holds what was received at a time.
type part struct {
	data []byte
	due  time.Time
}

// forward delivers what one end sends to the other, until either is closed.
func (r *relay) forward(from, to net.Conn) {
	parts := make(chan part, 1<<16)
	r.running.Go(func() {
		defer func() { _ = errors.Join(to.Close(), from.Close()) }()
		for p := range parts {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		for range parts { // The reader must not block.
		}
	})
	defer close(parts)
	for buffer := make([]byte, 1<<16); ; {
		n, err := from.Read(buffer)
		if n > 0 {
			parts <- part{append([]byte(nil), buffer[:n]...), time.Now().Add(r.delay)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = from.Close()
			}
			return
		}
	}
}
