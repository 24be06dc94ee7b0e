package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// world is a namespace and its nodes, with a model of what should be there.
type world struct {
	*framework.Scene
	nodes sets.Set[string]
	ports map[string]int32 // of each LocalService
	// unwanted has the Services that, since the last settle, somebody has made unwanted for a while.
	unwanted sets.Set[string]
	history  []string
	marks    map[*framework.Audit]framework.Mark // of each API server: what its log had at the last settle
}

func newWorld(t testing.TB, c *framework.Cluster, nodes int) *world {
	w := &world{Scene: c.NewScene(t, "fault"), nodes: sets.New[string](), ports: map[string]int32{},
		unwanted: sets.New[string](), marks: map[*framework.Audit]framework.Mark{c.Audit: c.Audit.Mark()}}
	for i := range nodes {
		w.addNode(fmt.Sprintf("n%d", i))
	}
	return w
}

// note records what was done, for whoever investigates a failure.
func (w *world) note(format string, args ...any) {
	w.history = append(w.history, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// fail fails the test with all that was done.
func (w *world) fail(format string, args ...any) {
	w.T.Helper()
	w.Fatalf("%s\nWhat was done:\n%s", fmt.Sprintf(format, args...), strings.Join(w.history, "\n"))
}

func (w *world) addNode(name string) {
	w.note("add node %s", name)
	w.nodes.Insert(w.NodeName(name))
	w.AddNodes(name)
}

func (w *world) deleteNode(name string) {
	w.note("delete node %s", name)
	w.nodes.Delete(w.NodeName(name))
	for ls := range w.ports {
		w.unwanted.Insert(ls + "-" + w.NodeName(name))
	}
	w.DeleteNode(w.NodeName(name))
}

func (w *world) create(name string) {
	w.note("create LocalService %s", name)
	w.ports[name] = w.Create(name).Spec.Ports[0].Port
}

func (w *world) edit(name string) {
	w.note("another port for LocalService %s", name)
	w.ports[name]++
	w.Update(name, func(ls *v1alpha1.LocalService) { ls.Spec.Ports[0].Port = w.ports[name] })
}

func (w *world) delete(name string) {
	w.note("delete LocalService %s", name)
	delete(w.ports, name)
	for node := range w.nodes {
		w.unwanted.Insert(name + "-" + node)
	}
	w.Must(w.LocalServiceClient().Delete(w.Ctx(), name, metav1.DeleteOptions{}))
}

// settle waits until everything is as the model says, and checks that nothing was deleted that was wanted all the time.
func (w *world) settle(what string) {
	w.T.Helper()
	if err := framework.Poll(w.Ctx(), w.check); err != nil {
		w.fail("%s: %v", what, err)
	}
	for audit, mark := range w.marks {
		w.marks[audit] = audit.Mark()
		deletions := audit.Since(mark).ByController().Namespace(w.Namespace).Resource("services").Verb("delete")
		for _, r := range deletions.Writes().Where(framework.Succeeded) {
			if !w.unwanted.Has(r.ObjectRef.Name) {
				w.fail("%s: Service %s was deleted", what, r.ObjectRef.Name)
			}
		}
	}
	w.unwanted = sets.New[string]()
}

// check compares the cluster with the model.
func (w *world) check(ctx context.Context) error {
	locals, err := w.LocalServiceClient().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	services, err := w.ServiceClient().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	errs := []error{
		framework.Equal("number of LocalServices", len(locals.Items), len(w.ports)),
		framework.Equal("number of Services", len(services.Items), len(w.ports)*len(w.nodes)),
	}
	found := map[string]*corev1.Service{}
	for i := range services.Items {
		found[services.Items[i].Name] = &services.Items[i]
	}
	for i := range locals.Items {
		ls := &locals.Items[i]
		errs = append(errs, framework.CheckReady(ls),
			framework.Equal("nodes of "+ls.Name, int(ls.Status.Nodes), len(w.nodes)))
		for node := range w.nodes {
			errs = append(errs, w.checkService(ls, found[ls.Name+"-"+node], node))
		}
	}
	return errors.Join(errs...)
}

func (w *world) checkService(ls *v1alpha1.LocalService, service *corev1.Service, node string) error {
	selector := maps.Clone(ls.Spec.Selector)
	selector[v1alpha1.DefaultNodeLabelKey] = node
	isPort := func(p corev1.ServicePort) bool { return p.Port == w.ports[ls.Name] }
	switch {
	case service == nil:
		return fmt.Errorf("the Service of %s for node %s is missing", ls.Name, node)
	case !metav1.IsControlledBy(service, ls):
		return fmt.Errorf("Service %s is not controlled by its LocalService", service.Name)
	case !maps.Equal(service.Spec.Selector, selector) || !slices.ContainsFunc(service.Spec.Ports, isPort):
		return fmt.Errorf("Service %s is %+v", service.Name, service.Spec)
	}
	return nil
}
