package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// check compares the cluster with the model.
func (w *world) check(ctx context.Context) error {
	locals, err := w.LocalServiceClient().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	list, err := w.ServiceClient().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	want, owners, gone := w.services(), map[string]*v1alpha1.LocalService{}, maps.Clone(w.foreign)
	var errs []error
	for i := range locals.Items {
		owners[locals.Items[i].Name] = &locals.Items[i]
		errs = append(errs, w.checkStatus(&locals.Items[i]))
	}
	if len(owners) != len(w.specs) {
		errs = append(errs, fmt.Errorf("%d LocalServices instead of %d", len(owners), len(w.specs)))
	}
	for i := range list.Items {
		service := &list.Items[i]
		owner := want[service.Name]
		delete(want, service.Name)
		delete(gone, service.Name)
		switch foreign := w.foreign[service.Name]; {
		case foreign != nil && !apiequality.Semantic.DeepEqual(foreign, service):
			return framework.Hopeless(fmt.Errorf("the foreign Service %s has been changed", service.Name))
		case foreign != nil:
		case owner == "" || owners[owner] == nil:
			errs = append(errs, fmt.Errorf("Service %s should not be there", service.Name))
		default:
			errs = append(errs, w.checkService(owners[owner], service))
		}
	}
	for name := range gone {
		return framework.Hopeless(fmt.Errorf("the foreign Service %s has been deleted", name))
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		errs = append(errs, fmt.Errorf("Service %s is missing", name))
	}
	return errors.Join(errs...)
}

func (w *world) checkService(ls *v1alpha1.LocalService, service *corev1.Service) error {
	node := strings.TrimPrefix(service.Name, ls.Name+"-")
	selector := maps.Clone(ls.Spec.Selector)
	selector[nodeLabelKey] = node
	headless := service.Spec.ClusterIP == corev1.ClusterIPNone
	switch ports := service.Spec.Ports; {
	case !metav1.IsControlledBy(service, ls):
		return fmt.Errorf("Service %s is not controlled by its LocalService", service.Name)
	case !maps.Equal(service.Spec.Selector, selector) || service.Labels[nodeLabelKey] != node:
		return fmt.Errorf("Service %s selects %v", service.Name, service.Spec.Selector)
	case headless != (ls.Spec.ClusterIP == corev1.ClusterIPNone):
		return fmt.Errorf("Service %s has the address %s", service.Name, service.Spec.ClusterIP)
	case len(ports) != 1 || ports[0].Port != ls.Spec.Ports[0].Port:
		return fmt.Errorf("Service %s has the ports %v", service.Name, ports)
	}
	return nil
}

func (w *world) checkStatus(ls *v1alpha1.LocalService) error {
	nodes, conflicts := 0, 0
	for node, set := range w.nodes {
		if labels.SelectorFromSet(ls.Spec.NodeSelector).Matches(labels.Set(set)) {
			nodes++
			if w.foreign[ls.Name+"-"+node] != nil {
				conflicts++
			}
		}
	}
	status := ls.Status
	if status.ObservedGeneration != ls.Generation || int(status.Nodes) != nodes ||
		int(status.Services) != nodes-conflicts {
		return fmt.Errorf("the status of LocalService %s reports %d/%d Services at generation %d; want %d/%d at %d",
			ls.Name, status.Services, status.Nodes, status.ObservedGeneration, nodes-conflicts, nodes, ls.Generation)
	}
	if conflicts > 0 {
		return framework.CheckCondition(ls, v1alpha1.ConditionConflicted, metav1.ConditionTrue,
			v1alpha1.ReasonNameTaken)
	}
	return framework.CheckReady(ls)
}

// settle waits until everything is as the model says, and checks that no unnecessary write was made.
func (w *world) settle(what string) {
	w.T.Helper()
	if err := framework.Poll(w.Ctx(), w.check); err != nil {
		w.fail("%s: %v", what, err)
	}
	w.readLog(w.Audit)
	if w.other != nil {
		w.readLog(w.other.Audit)
	}
	w.compare(what, "created", w.created, w.creates)
	w.compare(what, "deleted", w.deleted, w.deletes)
}

// readLog counts the requests in an API server's audit log since it was last read.
func (w *world) readLog(audit *framework.Audit) {
	requests := audit.Since(w.marks[audit])
	w.marks[audit] += framework.Mark(len(requests))
	for _, r := range requests.ByController().Namespace(w.Namespace).Resource("services").Writes() {
		var b bounds
		switch {
		case !framework.Failed(&r):
			b = bounds{1, 1}
		case r.ResponseStatus.Code == http.StatusGatewayTimeout:
			b = bounds{0, 1}
		}
		switch r.Verb {
		case "create":
			w.created[r.ObjectRef.Name] = w.created[r.ObjectRef.Name].plus(b)
		case "delete":
			w.deleted[r.ObjectRef.Name] = w.deleted[r.ObjectRef.Name].plus(b)
		}
	}
}

func (w *world) compare(what, done string, got, want map[string]bounds) {
	w.T.Helper()
	for _, service := range slices.Sorted(maps.Keys(got)) {
		if is, b := got[service], want[service]; is.most < b.least || is.least > b.most {
			w.fail("%s: Service %s was %s %d to %d times instead of %d to %d", what, service, done, is.least, is.most,
				b.least,
				b.most)
		}
	}
}

// rest waits until the controller has made no requests other than watches for a while, as it must when everything is
// done. The retry of a refused event may still follow.
func (w *world) rest(d time.Duration) {
	w.T.Helper()
	err := framework.Poll(w.Ctx(), func(context.Context) error {
		mark := w.Audit.Mark()
		time.Sleep(d)
		requests := w.Audit.Since(mark).ByController().Where(func(r *framework.Request) bool {
			return r.Verb != "watch" && r.ObjectRef.Resource != "leases" && r.ObjectRef.Namespace == w.Namespace
		})
		if len(requests) > 0 {
			return fmt.Errorf("at rest, the controller made requests: %s", requests)
		}
		return nil
	})
	if err != nil {
		w.fail("%v", err)
	}
}
