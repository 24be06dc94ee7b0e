package gitops

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestExamples tests the LocalServices of all examples. They have no unknown fields, and each port says its protocol:
// Argo CD with ServerSideApply=true cannot compare a port without one with the one in the cluster, which has the
// default.
func TestExamples(t *testing.T) {
	examples := framework.ModuleFile("artifacts", "examples")
	found := 0
	err := filepath.WalkDir(examples, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" || filepath.Base(path) == "crd.yaml" {
			return err
		}
		objects, err := framework.ReadObjects(path)
		if err != nil {
			return err
		}
		for _, object := range objects {
			if object.GetKind() != v1alpha1.Kind {
				continue
			}
			found++
			ls, err := framework.ToLocalService(object)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			for _, port := range ls.Spec.Ports {
				if port.Protocol == "" {
					t.Errorf("%s: port %d of LocalService %s has no protocol", path, port.Port, ls.Name)
				}
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("found %d LocalServices in %s, %v", found, examples, err)
	}
}
