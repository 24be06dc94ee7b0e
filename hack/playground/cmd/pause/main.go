// pause is the process that holds a pod's namespaces: it waits for a signal to stop.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The signals have to be caught: as process 1 of a pod, the kernel drops the ones that nobody handles.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}
