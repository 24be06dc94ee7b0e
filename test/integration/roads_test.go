package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// roads is a cluster in which somebody installs, changes and removes the controller, as docs/install.md says.
type roads struct {
	*framework.Cluster
	t       *testing.T
	page    string                         // docs/install.md
	kinds   map[string]*metav1.APIResource // of all that can be listed
	release []*unstructured.Unstructured   // of the chart, as it was installed last
	fresh   map[string]map[string]string   // the objects after a fresh install, by the way to install
}

// TestRoads walks each documented road from one way to install the controller to another, and back. The objects at its
// end are those of a fresh install: no right stays behind. What is removed leaves nothing.
func TestRoads(t *testing.T) {
	t.Parallel()
	options := framework.ControlPlane()
	options.WithoutCRD = true
	page, err := os.ReadFile(framework.ModuleFile("docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	r := &roads{Cluster: framework.NewCluster(t, options), t: t, page: string(page), fresh: map[string]map[string]string{}}
	r.discover()
	for _, namespace := range []string{"shop", "payments"} {
		r.RunKubectl(t, "create", "namespace", namespace)
	}
	const some = "namespaces: [shop, payments]"
	values := []string{"", some, "hostnames: {enabled: false}", "pods: {enabled: false}", "guard: {enabled: false}",
		"metrics: {secure: {enabled: true}}", "{" + some + ", hostnames: {enabled: false}}"}
	if r.servesAdmission() { // Kubernetes 1.36
		values = append(values, "admission: {enabled: true}")
	}
	for _, v := range values {
		r.want("the chart with "+v, func() { r.helm(v) })
		r.replaceRelease(nil)
	}
	r.helm("")
	for _, v := range values {
		r.want("the chart with "+v, func() { r.helm(v) })
		r.want("the chart with ", func() { r.helm("") })
	}
	r.helm(some)
	r.uninstallHelm("keep the CustomResourceDefinition")
	r.want("one file", r.installFile)
	r.uninstallFile("keep the CustomResourceDefinition")
	r.want("the chart with "+some, func() { r.helm(some) })
	r.uninstallHelm()

	r.want("one file", r.installFile)
	for _, part := range []string{"-f artifacts/deploy/hostnames.yaml", "-f artifacts/deploy/guard.yaml",
		"-f artifacts/deploy/metrics-secure.yaml", "-k artifacts/admission"} {
		switch {
		case strings.Contains(part, "admission") && !r.servesAdmission():
			continue
		case strings.Contains(part, "hostnames"), strings.Contains(part, "guard"):
			r.kubectl("delete " + part)
			r.want("one file", func() { r.kubectl("apply " + part) })
		default:
			r.kubectl("apply " + part)
			r.want("one file", func() { r.kubectl("delete " + part) })
		}
	}
	r.uninstallFile()
}

// installFile follows the section "With one file".
func (r *roads) installFile() {
	r.t.Helper()
	r.documented("artifacts/deploy/install.yaml | kubectl apply -f -")
	r.kubectl("apply -f artifacts/deploy/install.yaml")
}

// uninstallFile follows the section "Uninstall", and the section "Everything" unless something is to be kept.
func (r *roads) uninstallFile(keep ...string) {
	r.t.Helper()
	r.documented("kubectl delete -f artifacts/deploy/hostnames.yaml -f artifacts/deploy/local-service-controller.yaml " +
		"-f artifacts/deploy/guard.yaml")
	r.uninstalled(keep)
}

// uninstallHelm does the same for a release of the chart.
func (r *roads) uninstallHelm(keep ...string) {
	r.t.Helper()
	r.replaceRelease(nil)
	if len(keep) == 0 {
		r.documented("kubectl delete namespace local-service-system")
	}
	r.uninstalled(keep)
}

func (r *roads) uninstalled(keep []string) {
	r.t.Helper()
	if len(keep) > 0 {
		return
	}
	r.documented("kubectl delete crd localservices.localservice.dev")
	r.compare("nothing", r.objects(), nil)
}

// helm does what `helm upgrade --install --create-namespace --take-ownership` does: it applies what the chart renders,
// and deletes what the release had before and has no more.
func (r *roads) helm(values string) {
	r.t.Helper()
	file := filepath.Join(r.t.TempDir(), "release.yaml")
	out, _, err := framework.ChartProgram.Run(r.t.Context(), nil, nil, "-helm", "-values", values,
		framework.ModuleFile("artifacts", "chart", "local-service-controller"))
	if err := errors.Join(err, os.WriteFile(file, []byte(out), 0o600)); err != nil {
		r.t.Fatal(err)
	}
	objects, err := framework.ReadObjects(file)
	if err != nil {
		r.t.Fatal(err)
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": framework.ControllerNamespace}}}
	if err := r.apply(namespace); err != nil {
		r.t.Fatal(err)
	}
	if len(r.release) == 0 {
		r.documented("kubectl label namespace local-service-system pod-security.kubernetes.io/enforce=restricted")
	}
	r.replaceRelease(objects)
}

func (r *roads) replaceRelease(objects []*unstructured.Unstructured) {
	r.t.Helper()
	for _, object := range objects {
		if err := r.apply(object); err != nil {
			r.t.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	for _, old := range r.release {
		isSame := func(o *unstructured.Unstructured) bool {
			return o.GetKind() == old.GetKind() && o.GetNamespace() == old.GetNamespace() && o.GetName() == old.GetName()
		}
		if slices.ContainsFunc(objects, isSame) || old.GetAnnotations()["helm.sh/resource-policy"] == "keep" {
			continue
		}
		if err := r.client(old).Delete(r.t.Context(), old.GetName(), metav1.DeleteOptions{}); err != nil {
			r.t.Fatalf("delete %s %s: %v", old.GetKind(), old.GetName(), err)
		}
	}
	r.release = objects
}

func (r *roads) apply(object *unstructured.Unstructured) error {
	_, err := r.client(object).Apply(r.t.Context(), object.GetName(), object,
		metav1.ApplyOptions{FieldManager: "helm", Force: true})
	return err
}

func (r *roads) client(object *unstructured.Unstructured) dynamic.ResourceInterface {
	r.t.Helper()
	kind := r.kinds[object.GetAPIVersion()+" "+object.GetKind()]
	if kind == nil {
		r.t.Fatalf("the API server has no %s", object.GetKind())
	}
	return r.Dynamic.Resource(resourceOf(kind)).Namespace(object.GetNamespace())
}

func resourceOf(kind *metav1.APIResource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Name}
}

// documented runs a command that the page has: what follows the pipe, if there is one, is done by the caller.
func (r *roads) documented(command string) {
	r.t.Helper()
	if !strings.Contains(r.page, command) {
		r.t.Fatalf("docs/install.md does not say: %s", command)
	}
	if !strings.Contains(command, "|") {
		r.kubectl(strings.TrimPrefix(command, "kubectl "))
	}
}

// kubectl runs a command in the root of the repository.
func (r *roads) kubectl(command string) {
	r.t.Helper()
	r.RunKubectl(r.t, strings.Fields(strings.ReplaceAll(command, "artifacts/", framework.ModuleFile("artifacts")+"/"))...)
}

// want does the last step of a road to a way to install the controller, and compares the objects with those at the end
// of the first road to it.
func (r *roads) want(way string, do func()) {
	r.t.Helper()
	do()
	found := r.objects()
	if r.fresh[way] == nil {
		r.fresh[way] = found
	}
	r.compare(way, found, r.fresh[way])
}

// compare fails the test with the objects that are not as on a fresh install.
func (r *roads) compare(way string, found, want map[string]string) {
	r.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if found[name] != want[name] {
			r.t.Errorf("%s: %s: got %s\nwant %q", way, name, found[name], want[name])
		}
	}
	for name := range want {
		if found[name] == "" {
			r.t.Errorf("%s: %s is missing", way, name)
		}
	}
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// discover finds out which kinds there are.
func (r *roads) discover() {
	r.t.Helper()
	r.kinds = map[string]*metav1.APIResource{}
	lists, err := discovery.ServerPreferredResources(r.Kube.Discovery())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			r.t.Fatal(err)
		}
		for i := range list.APIResources {
			kind := &list.APIResources[i]
			if kind.Group, kind.Version = gv.Group, gv.Version; slices.Contains(kind.Verbs, "list") && kind.Kind != "Event" {
				r.kinds[list.GroupVersion+" "+kind.Kind] = kind
			}
		}
	}
}

// servesAdmission reports whether the API server has what artifacts/admission needs: Kubernetes 1.36.
func (r *roads) servesAdmission() bool {
	return r.kinds["admissionregistration.k8s.io/v1 MutatingAdmissionPolicy"] != nil
}

// objects returns the content of all objects that have our label or a name of ours, but those that Kubernetes makes.
// The labels count, because those of ClusterRoles grant rights; only the CustomResourceDefinition is kept on the road.
func (r *roads) objects() map[string]string {
	r.t.Helper()
	var found map[string]string
	r.Eventually(r.t, framework.ControllerNamespace, "all objects are listed", func(ctx context.Context) error {
		found = map[string]string{}
		kinds := slices.Collect(maps.Values(r.kinds))
		lists, errs := make([]map[string]string, len(kinds)), make([]error, len(kinds))
		workqueue.ParallelizeUntil(ctx, 8, len(kinds), func(i int) {
			lists[i], errs[i] = r.list(ctx, resourceOf(kinds[i]))
		})
		for _, list := range lists {
			maps.Copy(found, list)
		}
		return errors.Join(errs...)
	})
	return found
}

// list returns what objects does, of one resource.
func (r *roads) list(ctx context.Context, resource schema.GroupVersionResource) (map[string]string, error) {
	found := map[string]string{}
	list, err := r.Dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource, err)
	}
	for _, object := range list.Items {
		labels := object.GetLabels()
		isOurs := slices.Contains(slices.Collect(maps.Values(labels)), framework.ControllerAccount) ||
			strings.Contains(object.GetName(), "local-service") || strings.Contains(object.GetName(), "localservice")
		if !isOurs || len(object.GetOwnerReferences()) > 0 {
			continue
		}
		if object.GetDeletionTimestamp() != nil {
			return nil, errors.New(object.GetName() + " is being deleted")
		}
		content := maps.Clone(object.Object)
		delete(content, "metadata")
		delete(content, "status")
		if object.GetKind() != "CustomResourceDefinition" {
			content["labels"] = labels
		}
		text, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		found[fmt.Sprint(resource.Resource, " ", object.GetNamespace(), "/", object.GetName())] = string(text)
	}
	return found, nil
}
