package main

import (
	"io"
	"net"
)

// forward connects every connection to l with addr, until l is closed.
func forward(l net.Listener, addr string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", addr)
			if err != nil {
				return // the client sees its connection closed
			}
			defer out.Close()
			done := make(chan struct{}, 2)
			go func() { copyHalf(out, in); done <- struct{}{} }()
			go func() { copyHalf(in, out); done <- struct{}{} }()
			<-done
			<-done
		}()
	}
}

// copyHalf copies one direction of a connection and passes its end on: the other direction may continue.
func copyHalf(dst, src net.Conn) {
	_, _ = io.Copy(dst, src) // whatever ended it, it is over
	if half, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
