package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// commentCommand matches a command of kubectl in the comment of a manifest.
var commentCommand = regexp.MustCompile(`(?m)^#   (kubectl (?:[^\n\\]|\\\n#)*)`)

// TestCommandsInComments types the commands of kubectl that the comments of manifests tell users to type: it installs
// from one file, looks, uninstalls, and installs with kustomize. hack/chart tests those of sed.
func TestCommandsInComments(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, framework.ClusterOptions{ControlPlaneOnly: true, WithoutCRD: true,
		WithoutGuard: true})
	steps := []struct {
		file string
		want []string // what each of its commands prints, as a regular expression
	}{
		{"deploy/install.yaml", []string{
			`customresourcedefinition\S+/localservices.localservice.dev created\n(.*\n)*deployment\S+ created`,
			`validatingadmissionpolicy\S+ "local-service-controller-guard-endpointslices" deleted`}},
		{"deploy/kustomization.yaml", []string{`deployment\S+ created`}},
		{"deploy/guard.yaml", []string{`'local-service-controller-guard-services' with binding .* denied request`}},
		{"deploy/metrics-secure.yaml", []string{`clusterrole\S+/local-service-metrics-reader created`,
			`clusterrolebinding\S+/prometheus-local-service-metrics created`}},
		{"deploy/hostnames.yaml", []string{`clusterrole\S+ "local-service-controller-hostnames" deleted`}},
		{"admission/kustomization.yaml", []string{
			`validatingadmissionpolicy\S+/local-service-node-label-guard created`,
			`validatingadmissionpolicy\S+ "local-service-node-label-guard" deleted`}},
		{"with-admission/kustomization.yaml", []string{
			`(?s)clusterrole\S+/local-service-controller-hostnames created` +
				`.*validatingadmissionpolicy\S+/local-service-node-label-guard created`}},
	}
	commands, files := commandsInComments(t), []string{}
	for _, step := range steps {
		files = append(files, step.file)
		if err := framework.Equal("commands of "+step.file, len(commands[step.file]), len(step.want)); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(files)
	if err := framework.Equal("files with commands", slices.Sorted(maps.Keys(commands)), files); err != nil {
		t.Fatal(err)
	}
	const unknown = `no matches for kind "MutatingAdmissionPolicy" in version "admissionregistration.k8s.io/v1"`
	isNew := hasMutatingPolicies(t, cluster)
	for _, step := range steps {
		for i, command := range commands[step.file] {
			want := step.want[i]
			if strings.Contains(step.file, "admission") && !isNew {
				want = regexp.QuoteMeta(unknown)
			}
			// The API server watches policies, and so knows them a moment later.
			cluster.Eventually(t, framework.ControllerNamespace, command, func(ctx context.Context) error {
				printed, err := typeCommand(ctx, t, cluster, step.file, command)
				isRefused := strings.Contains(want, "denied request") || want == regexp.QuoteMeta(unknown)
				if (err != nil) != isRefused || !regexp.MustCompile(want).MatchString(printed) {
					err = fmt.Errorf("%w: it prints\n%s\nwant %s", err, printed, want)
				} else {
					err = nil
				}
				if err != nil && !isRefused {
					return framework.Hopeless(err)
				}
				return err
			})
		}
		if step.file == "deploy/install.yaml" { // It is uninstalled.
			_, err1 := cluster.Kube.CoreV1().Namespaces().Get(t.Context(), framework.ControllerNamespace,
				metav1.GetOptions{})
			out, err2 := cluster.Kubectl(t.Context(), "get", "localservices")
			if !apierrors.IsNotFound(err1) || err2 != nil {
				t.Errorf("after the uninstallation: namespace: %v; LocalServices: %v %s", err1, err2, out)
			}
		}
	}
}

// commandsInComments returns the commands of kubectl in the comments of manifests, by the file. The chart's templates
// are rendered into others.
func commandsInComments(t *testing.T) map[string][]string {
	t.Helper()
	root := framework.ModuleFile("artifacts")
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err1 := filepath.Rel(root, path)
		data, err2 := os.ReadFile(path)
		for _, match := range commentCommand.FindAllStringSubmatch(string(data), -1) {
			found[file] = append(found[file], strings.ReplaceAll(match[1], "\\\n#", ""))
		}
		return errors.Join(err1, err2)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// typeCommand types a command in the folder of its file, or in that of the project if it names one, and returns what it
// prints.
func typeCommand(ctx context.Context, t *testing.T, cluster *framework.Cluster, file, command string) (string, error) {
	t.Helper()
	const kubectl = `kubectl() { "$PLAYGROUND" kubectl "$@"; }; `
	cmd := exec.CommandContext(ctx, "bash", "-c", kubectl+command)
	cmd.Dir = framework.ModuleFile("artifacts", filepath.Dir(file))
	if strings.Contains(command, " artifacts/") {
		cmd.Dir = framework.ModuleFile()
	}
	cmd.Env = append(os.Environ(), "BASH_ENV=", "PLAYGROUND="+framework.PlaygroundProgram.MustPath(t),
		"KUBECONFIG="+cluster.Kubeconfig, "KUBECACHEDIR="+filepath.Join(cluster.Dir(), "kubectl-cache"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// hasMutatingPolicies reports whether an API server serves the kind of policy that needs Kubernetes 1.36.
func hasMutatingPolicies(t *testing.T, cluster *framework.Cluster) bool {
	t.Helper()
	list, err := cluster.Kube.Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == "MutatingAdmissionPolicy"
	})
}
