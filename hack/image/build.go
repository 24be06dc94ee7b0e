package main

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// build compiles a program. Nothing of the machine gets into the binary: no paths, no settings of the user's, no
// state of a work tree.
func build(ctx context.Context, version string, p program, platform v1.Platform, root, binary string) error {
	absolute, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags=-s -w -buildid= -X k8s.io/component-base/version.gitVersion="+version, "-o", absolute, p.folder)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture,
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s for %s: %w", p.name, platform, err)
	}
	if platform.OS != "linux" { // its system's library is always there, and the only one
		return nil
	}
	return checkStatic(binary)
}

// checkStatic reports a binary that could not run as the only file of an image.
func checkStatic(binary string) error {
	f, err := elf.Open(binary)
	if err != nil {
		return fmt.Errorf("look into %s: %w", binary, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is not static: it would find no libraries in the image", binary)
		}
	}
	return nil
}
