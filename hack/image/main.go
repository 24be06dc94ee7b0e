// image makes the controller's image without a container engine: for every platform a static binary, a bill of
// materials (SPDX 2.3) and an image that holds the binary and its licenses; and of the images an OCI layout and its
// tarball. With -release it makes all the other binaries of a release, too. The same commit gives the same files,
// wherever and whenever they are built with the same version of Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	name    = "local-service-controller"
	module  = "github.com/localservice-dev/local-service-controller"
	source  = "https://" + module
	license = "Apache-2.0"
)

// platforms are those of the image; otherPlatforms are those on which people work, and run the controller, too;
// pluginPlatforms are those of the plugin.
var (
	platforms       = []v1.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}}
	otherPlatforms  = []v1.Platform{{OS: "darwin", Architecture: "amd64"}, {OS: "darwin", Architecture: "arm64"}}
	pluginPlatforms = slices.Concat(platforms, otherPlatforms, []v1.Platform{{OS: windows, Architecture: "amd64"}})
)

const windows = "windows"

// program is a command, and where its sources are.
type program struct{ name, folder string }

var (
	controller = program{name: name, folder: "."}
	plugin     = program{name: "kubectl-localservice", folder: "./cmd/kubectl-localservice"}
)

// scripts are beside the plugin: kubectl completes its arguments with one, and runs the other for
// `kubectl create localservice`.
var scripts = []string{"kubectl_complete-localservice", "kubectl-create-localservice"}

// release is what an image says about itself: everything that may differ between two builds of the same sources.
type release struct {
	version  string    // as the controller reports it
	revision string    // the commit
	created  time.Time // the commit's time: the time of the build would give every build another digest
	ref      string    // the name that the tarball has in the store that it is loaded into
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "cannot make the image:", err)
		os.Exit(1)
	}
}

// versionPattern is of versions with which the controller starts: with others, component-base panics.
var versionPattern = regexp.MustCompile(`^v\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)

func run(ctx context.Context, args []string) error {
	var r release
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	root := flags.String("root", ".", "`folder` of the sources")
	out := flags.String("out", "bin/image", "`folder` to write to")
	created := flags.String("created", "", "`time` of the commit, as git prints it with %cI")
	all := flags.Bool("release", false, "make all binaries of a release, too")
	arch := flags.String("arch", "", "the only `architecture` to make the image for, such as amd64; empty for all")
	flags.StringVar(&r.version, "version", "", "`version` that the controller reports")
	flags.StringVar(&r.revision, "revision", "", "`commit` that it is built from")
	flags.StringVar(&r.ref, "ref", "localhost/"+name+":dev", "`name` of the image, with its tag")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if r.created, err = time.Parse(time.RFC3339, *created); err != nil {
		return fmt.Errorf("read -created: %w", err)
	}
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("-version is %q: it must be such as v1.2.3, or v1.2.3-rc.1", r.version)
	}
	if r.revision == "" {
		return errors.New("-revision is needed")
	}
	wanted := slices.DeleteFunc(slices.Clone(platforms), func(p v1.Platform) bool {
		return *arch != "" && p.Architecture != *arch
	})
	if len(wanted) == 0 {
		return fmt.Errorf("-arch is %q: the image is made for %v", *arch, platforms)
	}
	r.created = r.created.UTC()
	digest, err := makeImage(ctx, r, wanted, *root, *out)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s\n%s\n", r.ref, digest, filepath.Join(*out, name+".oci.tar"))
	if *all {
		return makeBinaries(ctx, r, *root, *out)
	}
	return nil
}

// makeBinaries builds what makeImage leaves: the controller for other platforms, and the plugin for all, in archives as
// plugin managers want them.
func makeBinaries(ctx context.Context, r release, root, out string) error {
	for _, platform := range otherPlatforms {
		if err := makeBinary(ctx, r, controller, platform, root, controller.file(out, platform)); err != nil {
			return err
		}
	}
	for _, platform := range pluginPlatforms {
		if err := makePlugin(ctx, r, platform, root, out); err != nil {
			return err
		}
	}
	return nil
}

// makePlugin builds the plugin and puts it into an archive. The scripts are not for Windows.
func makePlugin(ctx context.Context, r release, platform v1.Platform, root, out string) error {
	binary := plugin.file(out, platform)
	if err := makeBinary(ctx, r, plugin, platform, root, binary); err != nil {
		return err
	}
	files := map[string]string{plugin.executable(platform): binary, ownLicense: filepath.Join(root, ownLicense),
		otherLicenses: filepath.Join(out, otherLicenses)}
	if platform.OS != windows {
		for _, script := range scripts {
			files[script] = filepath.Join(root, plugin.folder, script)
		}
	}
	if err := writeArchive(r.created, plugin.archive(out, platform), files); err != nil {
		return fmt.Errorf("write the archive of %s: %w", binary, err)
	}
	return os.Remove(binary)
}

// makeBinary builds a program and writes its bill of materials.
func makeBinary(ctx context.Context, r release, p program, platform v1.Platform, root, binary string) error {
	if err := build(ctx, r.version, p, platform, root, binary); err != nil {
		return err
	}
	if err := writeSBOM(r, binary); err != nil {
		return fmt.Errorf("write the bill of materials of %s: %w", binary, err)
	}
	return nil
}

// makeImage builds all from the sources in root, writes it to out, and returns the digest of the image's index.
func makeImage(ctx context.Context, r release, platforms []v1.Platform, root, out string) (v1.Hash, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return v1.Hash{}, err
	}
	if err := writeLicenses(ctx, root, filepath.Join(out, otherLicenses)); err != nil {
		return v1.Hash{}, err
	}
	images := make([]v1.Image, len(platforms))
	for i, platform := range platforms {
		binary := controller.file(out, platform)
		err := makeBinary(ctx, r, controller, platform, root, binary)
		if err != nil {
			return v1.Hash{}, err
		}
		if images[i], err = newImage(r, platform, map[string]string{
			name: binary, ownLicense: filepath.Join(root, ownLicense), otherLicenses: filepath.Join(out, otherLicenses),
		}); err != nil {
			return v1.Hash{}, fmt.Errorf("make an image of %s: %w", binary, err)
		}
	}
	index, err := newIndex(r, images)
	if err != nil {
		return v1.Hash{}, err
	}
	folder := filepath.Join(out, name)
	if err := writeLayout(r, index, folder); err != nil {
		return v1.Hash{}, fmt.Errorf("write the OCI layout %s: %w", folder, err)
	}
	if err := writeTarball(r.created, folder, folder+".oci.tar"); err != nil {
		return v1.Hash{}, fmt.Errorf("write the tarball of %s: %w", folder, err)
	}
	return index.Digest()
}

// file is where a program's binary is, or goes.
func (p program) file(folder string, platform v1.Platform) string {
	return filepath.Join(folder, p.name+"_"+platform.OS+"_"+platform.Architecture)
}

// executable is what a program is called where it is installed.
func (p program) executable(platform v1.Platform) string {
	if platform.OS == windows {
		return p.name + ".exe"
	}
	return p.name
}

// archive is where a program's archive goes: a .zip for Windows, because Krew takes that or .tar.gz, and Windows opens
// only the former in its file manager.
func (p program) archive(folder string, platform v1.Platform) string {
	if platform.OS == windows {
		return p.file(folder, platform) + ".zip"
	}
	return p.file(folder, platform) + ".tar.gz"
}
