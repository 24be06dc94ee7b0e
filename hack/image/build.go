package main

import (
	"context"
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
	fmt.Fprintf(os.Stderr, "building %s for %s\n", p.name, platform) // each takes up to a minute
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly",
		"-ldflags=-s -w -buildid= -X k8s.io/component-base/version.gitVersion="+version, "-o", absolute, p.folder)
	cmd.Dir = root
	cmd.Env = append(environment(), "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s for %s: %w", p.name, platform, err)
	}
	return nil
}

// environment has no settings of the user's that change what is built.
func environment() []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=",
		"GOFIPS140=off", "GOWORK=off")
}

// The licenses that go with each binary: that of this module, and those of what is linked.
const (
	ownLicense    = "LICENSE"
	otherLicenses = "THIRD_PARTY_LICENSES"
)

// writeLicenses writes one file for all programs and platforms, so that the image does not depend on whether it is made
// alone or with the other binaries of a release.
func writeLicenses(ctx context.Context, root, target string) error {
	fmt.Fprintln(os.Stderr, "collecting the licenses of everything that is linked")
	cmd := exec.CommandContext(ctx, "go", "run", "./hack/licenses", controller.folder, plugin.folder)
	cmd.Dir, cmd.Env, cmd.Stderr = root, environment(), os.Stderr
	licenses, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("collect the licenses of what is linked: %w", err)
	}
	return os.WriteFile(target, licenses, 0o644)
}
