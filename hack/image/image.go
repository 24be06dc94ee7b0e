package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	containername "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is nobody in particular, as in the Deployment. There is no /etc/passwd in the image: numbers need none.
const user = "65532:65532"

func (r release) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       name,
		"org.opencontainers.image.description": "Gives your app one DNS name per node.",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.revision,
		"org.opencontainers.image.created":     r.created.Format(time.RFC3339),
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.licenses":    license,
	}
}

// newImage is an image of one layer, which has the binary, and the licenses of what is in it. Certificates are not
// needed: those of the API server come with the service account.
func newImage(r release, platform v1.Platform, files map[string]string) (v1.Image, error) {
	var archive bytes.Buffer
	if err := writeTar(&archive, r.created, files); err != nil {
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
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
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

func write(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

// newIndex is the image of all platforms: what is pulled under its digest is the one of the machine that pulls it.
func newIndex(r release, images []v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, image := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &platforms[i]},
		})
	}
	return mutate.Annotations(index, r.annotations()).(v1.ImageIndex), nil
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

// writeTarball writes all files of a folder to an archive.
func writeTarball(modTime time.Time, folder, target string) error {
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, path)
		files[filepath.ToSlash(relative)] = path
		return err
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", folder, err)
	}
	return writeArchive(modTime, target, files)
}

// writeArchive writes files to an archive, by their names there: a .zip, or a tarball, which is compressed if it is
// called .gz.
func writeArchive(modTime time.Time, target string, files map[string]string) (err error) {
	f, err := os.Create(target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	switch filepath.Ext(target) {
	case ".zip":
		return writeZip(f, modTime, files)
	case ".gz":
		compressed := gzip.NewWriter(f)
		defer func() { err = errors.Join(err, compressed.Close()) }()
		return writeTar(compressed, modTime, files)
	}
	return writeTar(f, modTime, files)
}

// writeTar writes files to a tarball.
func writeTar(out io.Writer, modTime time.Time, files map[string]string) error {
	w := tar.NewWriter(out)
	err := eachFile(files, func(name string, mode fs.FileMode, data []byte) error {
		header := tar.Header{
			Name: name, Mode: int64(mode), Size: int64(len(data)), ModTime: modTime, Format: tar.FormatPAX,
		}
		return errors.Join(w.WriteHeader(&header), write(w, data))
	})
	return errors.Join(err, w.Close())
}

// writeZip writes files to a .zip.
func writeZip(out io.Writer, modTime time.Time, files map[string]string) error {
	w := zip.NewWriter(out)
	err := eachFile(files, func(name string, mode fs.FileMode, data []byte) error {
		header := zip.FileHeader{Name: name, Method: zip.Deflate, Modified: modTime}
		header.SetMode(mode)
		file, err := w.CreateHeader(&header)
		if err != nil {
			return err
		}
		return write(file, data)
	})
	return errors.Join(err, w.Close())
}

// eachFile adds files to an archive in the order of their names there, with nothing of the machine's file system but
// whether they can be executed.
func eachFile(files map[string]string, add func(name string, mode fs.FileMode, data []byte) error) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		data, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		info, err := os.Stat(files[name])
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		if err := add(name, mode, data); err != nil {
			return err
		}
	}
	return nil
}
