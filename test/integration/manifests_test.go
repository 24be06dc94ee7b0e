package integration

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// notManifests are the YAML files in artifacts that are not for `kubectl apply -f`: the source of others, parts of
// others, for other programs, or of kinds that no cluster has by itself. Every cluster here has the
// CustomResourceDefinition.
var notManifests = regexp.MustCompile(
	`/(chart|krew|kube-state-metrics|prometheus)/|/(patch-[^/]*|crd\.yaml)$`)

// TestManifests has an API server check every manifest and every kustomization, without storing any.
func TestManifests(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, name := range []string{framework.ControllerNamespace, "hostnames"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := shared.Kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	apply := []string{"apply", "--dry-run=server", "--validate=strict"}
	all, kustomizations := apply, 0
	err := filepath.WalkDir(framework.ModuleFile("artifacts"), func(path string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil || filepath.Ext(path) != ".yaml" || notManifests.MatchString(path):
		case filepath.Base(path) == "kustomization.yaml":
			kustomizations++
			shared.RunKubectl(t, append(apply, "-k", filepath.Dir(path))...)
		default:
			all = append(all, "-f", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 || kustomizations < 4 {
		t.Errorf("artifacts has only %d kustomizations, and these manifests: %v", kustomizations, all)
	}
	shared.RunKubectl(t, all...)
}
