package internal_test

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/localservice-dev/local-service-controller/"

// rooms lists the packages, and what each may import from the module and from Kubernetes' clients. A package imports
// only packages that come before it in this list.
var rooms = []struct {
	name string
	// pure packages have neither clients nor locks.
	pure    bool
	imports []string
}{
	{"pkg/naming", true, nil},
	{"internal/plan", true, []string{"pkg/apis", "pkg/naming"}},
	{"internal/words", true, []string{"pkg/apis", "pkg/naming", "internal/plan"}},
	{"internal/status", true, []string{"pkg/apis", "internal/plan", "internal/words"}},
	{"cmd/kubectl-localservice/diagnose", true, []string{"pkg/apis", "pkg/naming", "internal/plan", "internal/words"}},
	{"internal/owner", false, nil},
	{"internal/metrics", false, []string{"pkg/apis", "internal/plan"}},
	{"internal/reconcile", false, nil},
	{"internal/cache", false, []string{"pkg/", "internal/plan"}},
	{"internal/writer", false, []string{"pkg/", "internal/cache", "internal/metrics", "internal/owner",
		"internal/plan", "internal/reconcile", "internal/status", "internal/words"}},
	{"internal/app", false, []string{"pkg/", "internal/cache", "internal/metrics", "internal/plan", "internal/words", "internal/writer"}},
	{"cmd/kubectl-localservice/view", false, []string{"pkg/apis", "cmd/kubectl-localservice/diagnose"}},
	{"cmd/kubectl-localservice", false, []string{"pkg/", "internal/plan", "internal/words",
		"cmd/kubectl-localservice/"}},
}

func TestRooms(t *testing.T) {
	for _, room := range rooms {
		t.Run(room.name, func(t *testing.T) {
			pkg, err := build.ImportDir("../"+room.name, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range pkg.Imports {
				ours, isOurs := strings.CutPrefix(path, module)
				switch {
				case isOurs && !slices.ContainsFunc(room.imports,
					func(may string) bool { return strings.HasPrefix(ours, may) }):
					t.Errorf("imports %s, but may import only %v from this module", ours, room.imports)
				case room.pure && !isOurs && !isPure(path):
					t.Errorf("imports %s, but may have neither clients nor locks", path)
				}
			}
		})
	}
}

// isPure reports whether an external package has types and functions only.
func isPure(path string) bool {
	switch {
	case path == "sync", strings.HasPrefix(path, "sync/"), path == "net/http", path == "os", path == "context":
		return false
	}
	return !strings.Contains(path, ".") || strings.HasPrefix(path, "k8s.io/api/") ||
		strings.HasPrefix(path, "k8s.io/apimachinery/pkg/") || path == "k8s.io/utils/ptr" ||
		strings.HasPrefix(path, "golang.org/x/text/") ||
		strings.HasPrefix(path, "k8s.io/component-helpers/scheduling/corev1") || path == "k8s.io/klog/v2"
}
