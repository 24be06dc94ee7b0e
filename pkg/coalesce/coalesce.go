// Package coalesce makes connections that are read in intervals. They are for a watch of very many small events of which
// none is urgent, as the heartbeats of nodes: to wake up for each of them is most of what it costs.
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
	// What arrives waits for at most maxDelay, or until there are enough bytes of it.
	maxDelay = 100 * time.Millisecond
	enough   = 64 << 10

	// As client-go's own connections have them.
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// Dial makes a connection, as net.Dialer.DialContext does, on which what arrives is read with a delay of up to 100 ms.
// Do not set read deadlines on it.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive, Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(setLowWater)
	}}
	inner, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: inner, buffer: bufio.NewReaderSize(patientReader{inner}, enough)}, nil
}

type conn struct {
	net.Conn
	buffer *bufio.Reader
}

// Read returns the next of what has arrived.
func (c *conn) Read(p []byte) (int, error) { return c.buffer.Read(p) }

// patientReader reads what there is. If there is nothing, it looks again after a while, or when there is enough: for
// less the kernel wakes nobody, thanks to the low-water mark of the socket.
type patientReader struct{ net.Conn }

func (r patientReader) Read(p []byte) (int, error) {
	for {
		if err := r.SetReadDeadline(time.Now().Add(maxDelay)); err != nil {
			return 0, err
		}
		n, err := r.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}
