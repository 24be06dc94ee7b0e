package e2e

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Images that documents use, and the programs that they use of them.
var (
	busyboxImage = []string{"docker.io/library/busybox:1.37", "sh", "mkdir", "httpd", "wget"}
	dnsImage     = []string{"registry.k8s.io/e2e-test-images/agnhost:2.39",
		"dig", "sh", "awk", "cat", "cmp", "grep", "mv", "sleep", "sort", "test", "cp", "ln", "rm", "timeout", "touch", "wc"}
)

// localImage makes an image with programs of this machine, and returns it as `playground load` takes it: what these
// tests run has no registry.
func localImage(t testing.TB, image []string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	args := append([]string{"-c", writeImage, file, runtime.GOARCH}, image...)
	if out, err := exec.Command("bash", args...).CombinedOutput(); err != nil {
		t.Fatalf("making the image %s: %v: %s", image[0], err, out)
	}
	return image[0] + "=" + file
}

// writeImage writes a docker-archive with programs: those of Debian's busybox, or this machine's with their libraries.
const writeImage = `
set -euo pipefail
busybox=$(command -v busybox) || { echo "install busybox-static first, as make packages does" >&2; exit 1; }
file=$0 arch=$1 image=$2
shift 2
cd "$(mktemp -d)"
mkdir bin tmp
cp "$busybox" bin/busybox
programs=$(busybox --list) # A pipe to grep -q fails when busybox is the slower one.
for program; do
  if grep -qx "$program" <<<"$programs"; then
    ln -s busybox "bin/$program"
    continue
  fi
  path=$(command -v "$program") || { echo "install $program first, as make packages does" >&2; exit 1; }
  cp "$path" bin
  for library in $(ldd "$path" | grep -o '/[^ ]*'); do
    mkdir -p ".${library%/*}"
    cp -L "$library" ".$library"
  done
done
tar -cf layer.tar --exclude=layer.tar .
echo '{"architecture": "'"$arch"'", "os": "linux", "config": {"Env": ["PATH=/bin"]}, "rootfs": {"type": "layers",
  "diff_ids": ["sha256:'"$(sha256sum layer.tar | cut -d ' ' -f 1)"'"]}}' >config.json
echo '[{"Config": "config.json", "RepoTags": ["'"$image"'"], "Layers": ["layer.tar"]}]' >manifest.json
tar -cf "$file" layer.tar config.json manifest.json
rm -r "$PWD"
`
