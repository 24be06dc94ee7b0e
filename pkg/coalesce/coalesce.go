// Package coalesce makes connections that are read in intervals while much arrives. They are for a watch of very many
// small events of which none is urgent, as the heartbeats of nodes: to wake up for each of them is most of what it costs.
package coalesce

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// A connection is busy while more than busyRate bytes arrive in a second, some 50 heartbeats. It is looked at
	// every period whether it is.
	busyRate = 64 << 10
	period   = time.Second

	// On a busy connection, what arrives waits for at most maxDelay, or until there are enough bytes of it.
	maxDelay = 100 * time.Millisecond
	enough   = 64 << 10

	// As client-go's own connections have them.
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// Dial makes a connection, as net.Dialer.DialContext does, on which what arrives is read with a delay of up to 100 ms
// while much arrives. Do not set read deadlines on it.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	inner, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: inner, buffer: bufio.NewReaderSize(&patientReader{Conn: inner, since: time.Now()}, enough)}, nil
}

type conn struct {
	net.Conn
	buffer *bufio.Reader
}

// Read returns the next of what has arrived.
func (c *conn) Read(p []byte) (int, error) { return c.buffer.Read(p) }

// patientReader reads what there is. If there is nothing, and the connection is busy, it looks again after a while, or
// when there is enough: for less the kernel wakes nobody, thanks to the low-water mark of the socket.
type patientReader struct {
	net.Conn
	busy  bool
	since time.Time // begin of the present period
	bytes int       // that have arrived in it
}

func (r *patientReader) Read(p []byte) (int, error) {
	for {
		var deadline time.Time
		if r.busy {
			deadline = time.Now().Add(maxDelay)
		}
		if err := r.SetReadDeadline(deadline); err != nil {
			return 0, err
		}
		n, err := r.Conn.Read(p)
		r.adapt(n)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// adapt finds out at the end of each period whether the connection is busy.
func (r *patientReader) adapt(arrived int) {
	r.bytes += arrived
	elapsed := time.Since(r.since)
	if elapsed < period {
		return
	}
	busy := float64(r.bytes) > busyRate*elapsed.Seconds()
	r.since, r.bytes = time.Now(), 0
	if busy == r.busy {
		return
	}
	r.busy = busy
	lowWater := 1
	if busy {
		lowWater = enough
	}
	// Where it cannot be set, all works the same, and costs more.
	if socket, ok := r.Conn.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { setLowWater(fd, lowWater) })
		}
	}
}
