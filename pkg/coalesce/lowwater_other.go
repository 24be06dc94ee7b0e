//go:build !unix

package coalesce

func setLowWater(uintptr, int) {}
