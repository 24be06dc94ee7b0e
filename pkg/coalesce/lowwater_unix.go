//go:build unix

package coalesce

import "syscall"

// setLowWater has the kernel tell of data only when there are so many bytes.
func setLowWater(fd uintptr, bytes int) {
	_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
}
