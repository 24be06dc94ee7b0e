package coalesce

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// pair is a connection and its other end.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	}()
	client, err = Dial(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server = <-accepted
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}

func send(t *testing.T, conn net.Conn, data []byte) {
	t.Helper()
	if _, err := conn.Write(data); err != nil {
		t.Error(err)
	}
}

// TestAllArrives: little and much, in one piece and in many, until the end.
func TestAllArrives(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	var want []byte
	for i := range 200 {
		want = append(want, bytes.Repeat([]byte{byte(i)}, 1+i*i)...)
	}
	go func() {
		for rest, size := want, 1; len(rest) > 0; size = size*3 + 1 {
			n := min(size, len(rest))
			send(t, server, rest[:n])
			rest = rest[n:]
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	got, err := io.ReadAll(client)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
	}
}

// TestFewWakeups: once much arrives, it is read a lot at a time.
func TestFewWakeups(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("known to work on Linux")
	}
	client, server := pair(t)
	const events, size = 2000, 1000
	go func() {
		for range events {
			send(t, server, make([]byte, size))
			time.Sleep(time.Millisecond) // The pace of the events, not a wait for something.
		}
	}()
	began, reads, late := time.Now(), 0, 0
	for total := 0; total < events*size; {
		n, err := client.Read(make([]byte, events*size))
		if err != nil {
			t.Fatal(err)
		}
		total += n
		if time.Since(began) > period+maxDelay {
			reads++
			late += n / size
		}
	}
	if reads > late/4 {
		t.Errorf("%d reads for %d events, after it could be known that there are many", reads, late)
	}
}

// TestCloseEndsRead: a read that waits ends when the connection is closed.
func TestCloseEndsRead(t *testing.T) {
	t.Parallel()
	client, _ := pair(t)
	result := make(chan error)
	go func() {
		_, err := client.Read(make([]byte, 1))
		result <- err
	}()
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v, want %v", err, net.ErrClosed)
	}
}
