// image makes the controller's image without a container engine and without a base image: for each platform a layer
// with the binary and its licenses, and of these an OCI layout and its tarball. The same binaries give the same image.
//
//	make-image -version v1.2.3 -ref NAME:TAG -revision COMMIT -created TIME -out FOLDER OS_ARCH...
//
// FOLDER has the files that hack/image.sh puts there.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	containername "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	name   = "local-service-controller"
	source = "https://github.com/localservice-dev/local-service-controller"
	// user is nobody in particular, as in the Deployment. There is no /etc/passwd in the image: numbers need none.
	user = "65532:65532"
)

// licenseFiles go with each binary: the license of this module, and those of what is linked.
var licenseFiles = []string{"LICENSE", "THIRD_PARTY_LICENSES"}

// release holds what an image says about itself.
type release struct {
	version  string
	revision string
	created  time.Time // the commit's time: the time of the build would give every build another digest
	ref      string    // the name that the tarball has in the store that it is loaded into
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot make the image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	var r release
	flags := flag.NewFlagSet("image", flag.ExitOnError)
	out := flags.String("out", "", "`folder` with the files, to write to")
	flags.StringVar(&r.version, "version", "", "`version` that the controller reports")
	flags.StringVar(&r.revision, "revision", "", "`commit` that it is built from")
	flags.StringVar(&r.ref, "ref", "", "`name` of the image, with its tag")
	flags.Func("created", "`time` of the commit, as git prints it with %cI", func(s string) error {
		created, err := time.Parse(time.RFC3339, s)
		r.created = created.UTC()
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range flags.Args() {
		system, arch, _ := strings.Cut(arg, "_")
		platform := v1.Platform{OS: system, Architecture: arch}
		image, err := newImage(r, platform, *out)
		if err != nil {
			return fmt.Errorf("for %s: %w", platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &platform},
		})
	}
	index = mutate.Annotations(index, r.annotations()).(v1.ImageIndex)
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	folder := filepath.Join(*out, name)
	if err := errors.Join(writeLayout(r, index, folder), writeTarball(r, folder)); err != nil {
		return fmt.Errorf("write the layout %s: %w", folder, err)
	}
	fmt.Printf("%s %s\n%s.oci.tar\n", r.ref, digest, folder)
	return nil
}

func (r release) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       name,
		"org.opencontainers.image.description": "Gives your app one DNS name per node.",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.revision,
		"org.opencontainers.image.created":     r.created.Format(time.RFC3339),
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

// newImage makes the image of a platform. It needs no certificates: those of the API server come with the service
// account.
func newImage(r release, platform v1.Platform, folder string) (v1.Image, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := addFile(w, r, filepath.Join(folder, name+"_"+platform.OS+"_"+platform.Architecture), name, 0o755)
	for _, file := range licenseFiles {
		err = errors.Join(err, addFile(w, r, filepath.Join(folder, file), file, 0o644))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression),
		tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image, err := mutate.Append(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: r.created}, CreatedBy: "make image"},
		})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = platform.OS, platform.Architecture
	config.Created = v1.Time{Time: r.created}
	config.Config = v1.Config{
		User:         user,
		Entrypoint:   []string{"/" + name},
		ExposedPorts: map[string]struct{}{"8081/tcp": {}},
		WorkingDir:   "/",
		Labels:       r.annotations(),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, r.annotations()).(v1.Image), nil
}

// addFile adds a file to a tarball, with nothing of the machine's file system but its content.
func addFile(w *tar.Writer, r release, file, as string, mode int64) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	header := tar.Header{Name: as, Mode: mode, Size: int64(len(data)), ModTime: r.created, Format: tar.FormatPAX}
	if err := w.WriteHeader(&header); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// writeLayout replaces folder with an OCI layout of the index, named as tools expect it: by its tag for those that
// follow the specification, by its whole name for containerd and Docker.
func writeLayout(r release, index v1.ImageIndex, folder string) error {
	ref, err := containername.NewTag(r.ref, containername.StrictValidation)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": ref.TagStr(),
		"io.containerd.image.name":          r.ref, // as given: the library calls docker.io index.docker.io
	}))
}

// writeTarball writes all files of a layout to a tarball beside it.
func writeTarball(r release, folder string) error {
	f, err := os.Create(folder + ".oci.tar")
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		return errors.Join(err, addFile(w, r, path, filepath.ToSlash(relative), 0o644))
	})
	return errors.Join(err, w.Close(), f.Close())
}
