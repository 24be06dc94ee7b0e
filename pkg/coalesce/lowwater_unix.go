//go:build unix

package coalesce

import "syscall"

// setLowWater has the kernel tell of data only when there is enough. Where it cannot, all works the same, and costs more.
func setLowWater(fd uintptr) {
	_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, enough)
}
