package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	userName  = "user"
	finalizer = "example.com/simulated"
)

// Where things happen. Some names are prefixes of others, and two nodes want the same names.
var (
	namespaces = []string{"a", "b"}
	nodes      = []string{"n0", "n1", "n2", "n0-n1", "n0.n1", "n3.example.com", "n4"}
)

// actions lists what a step can do to the objects of the API server, by its Do. An action that fails, for example
// because the API server refuses it, does nothing.
var actions = map[string]func(w *world, s Step) error{
	"add-node":     func(w *world, s Step) error { return w.server.Create(userName, newNode(s.On)) },
	"remove-node":  func(w *world, s Step) error { return w.remove(newNode(s.On)) },
	"return-node":  returnNode,
	"label-node":   labelNode,
	"apply":        applyLS,
	"edit":         editLS,
	"spoil":        spoilLS,
	"delete":       deleteLS,
	"recreate":     recreateLS,
	"edit-status":  editStatus,
	"forge":        forgeService,
	"edit-service": editService,
	"drop-service": dropService,
	"edit-slice":   editSlice,
	"add-pod":      addPod,
	"ready-pod":    readyPod,
	"complete-pod": completePod,
	"remove-pod":   removePod,
	"scale":        scale,
	"end-workload": func(w *world, s Step) error { return w.server.Delete(userName, newReplicaSet(s), deletion(s.How)) },
	"quota":        setQuota,
	"oppose":       oppose,
	"admission":    setAdmission,
}

func metaOf(key string) metav1.ObjectMeta {
	namespace, name, isNamespaced := strings.Cut(key, "/")
	if !isNamespaced {
		return metav1.ObjectMeta{Name: namespace}
	}
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func (w *world) remove(object Object) error {
	return w.server.Delete(userName, object, metav1.DeleteOptions{})
}

func newNode(name string) *corev1.Node {
	zone := "east"
	switch i := slices.Index(nodes, name); {
	case i == 2:
		zone = "West" // It wants the name of the group west.
	case i%2 == 1:
		zone = "west"
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "ssd",
		"zone": zone}}}
}

// returnNode removes a node, and adds it again after a while.
func returnNode(w *world, s Step) error {
	if err := w.remove(newNode(s.On)); err != nil {
		return err
	}
	gone, _ := time.ParseDuration(s.How) // none for at once
	time.Sleep(gone)
	return w.server.Create(userName, newNode(s.On))
}

func labelNode(w *world, s Step) error {
	return Update(w.server, userName, "", s.On, func(n *corev1.Node) {
		key, value, _ := strings.Cut(s.How, "=")
		if n.Labels[key] = value; value == "" {
			delete(n.Labels, key)
		}
	})
}

// newLS returns a LocalService to which the named specs are applied one after the other.
func newLS(key, how string) *v1alpha1.LocalService {
	ls := &v1alpha1.LocalService{ObjectMeta: metaOf(key)}
	for _, name := range append([]string{"headless", "port-80", "app-demo"}, strings.Split(how, ",")...) {
		if change := specs[name]; change != nil {
			change(&ls.Spec)
		}
	}
	return ls
}

// applyLS creates a LocalService, or gives the existing one the spec of a new one. The mode stays unless it is named.
func applyLS(w *world, s Step) error {
	ls := newLS(s.On, s.How)
	if Get[*v1alpha1.LocalService](w.server, ls.Namespace, ls.Name) == nil {
		return w.server.Create(userName, ls)
	}
	return w.updateLS(s.On, func(stored *v1alpha1.LocalService) {
		ls.Spec.Mode = cmp.Or(ls.Spec.Mode, stored.Spec.Mode)
		stored.Spec = ls.Spec
	})
}

func (w *world) updateLS(on string, change func(ls *v1alpha1.LocalService)) error {
	key := metaOf(on)
	return Update(w.server, userName, key.Namespace, key.Name, change)
}

func editLS(w *world, s Step) error {
	return w.updateLS(s.On, func(ls *v1alpha1.LocalService) {
		if s.How == "annotation" {
			metav1.SetMetaDataAnnotation(&ls.ObjectMeta, "example.com/note", time.Now().String())
		}
		for name := range strings.SplitSeq(s.How, ",") {
			if change := specs[name]; change != nil {
				change(&ls.Spec)
			}
		}
	})
}

// spoilLS gives a LocalService a spec that an older CustomResourceDefinition accepted.
func spoilLS(w *world, s Step) error {
	w.server.isLenient.Store(true)
	defer w.server.isLenient.Store(false)
	return w.updateLS(s.On, func(ls *v1alpha1.LocalService) { invalidSpecs[s.How](&ls.Spec) })
}

func deleteLS(w *world, s Step) error {
	return w.server.Delete(userName, &v1alpha1.LocalService{ObjectMeta: metaOf(s.On)}, deletion(s.How))
}

// deletion returns the options for a propagation policy, "" for the default.
func deletion(policy string) (options metav1.DeleteOptions) {
	if policy != "" {
		options.PropagationPolicy = new(metav1.DeletionPropagation(policy))
	}
	return options
}

func recreateLS(w *world, s Step) error {
	if err := deleteLS(w, Step{On: s.On}); err != nil {
		return err
	}
	return w.server.Create(userName, newLS(s.On, s.How))
}

// editStatus replaces the status of a LocalService. It is repaired after the longest backoff.
func editStatus(w *world, s Step) error {
	w.disturb(0, retryTime)
	key := metaOf(s.On)
	return Update(w.server, userName, key.Namespace, key.Name, func(ls *v1alpha1.LocalService) {
		ls.Status = v1alpha1.LocalServiceStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionStalled,
			Status: metav1.ConditionTrue, Reason: "Restored", LastTransitionTime: metav1.Now()}}}
	}, "status")
}

// forgeService creates a Service that interferes: under a name that a LocalService wants, or with the marks of ours.
func forgeService(w *world, s Step) error {
	service := &corev1.Service{ObjectMeta: metaOf(s.On), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "theirs"}}}
	owner, node, _ := strings.Cut(service.Name, "-")
	ref := metav1.OwnerReference{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.Kind, Name: owner,
		Controller: new(true)}
	switch s.How {
	case "lookalike": // has our label, and another selector
		service.Labels = map[string]string{v1alpha1.OwnerLabelKey: owner}
	case "orphan": // like one that an earlier LocalService orphaned
		service.Labels = map[string]string{v1alpha1.OwnerLabelKey: owner}
		service.Spec.Selector[v1alpha1.DefaultNodeLabelKey] = node
	case "claims": // claims a LocalService of this name as its owner, with a false UID
		ref.UID = types.UID("forged")
		service.OwnerReferences = []metav1.OwnerReference{ref}
	case "claims-ours", "claims-other": // claims the LocalService of this name here, or in the other namespace
		for _, ls := range List[*v1alpha1.LocalService](w.server) {
			if (ls.Namespace == service.Namespace) == (s.How == "claims-ours") && ls.Name == owner {
				ref.UID = ls.UID
				service.OwnerReferences = []metav1.OwnerReference{ref}
			}
		}
	}
	return w.server.Create(userName, service)
}

// serviceEdits are external changes to our Services, by name.
var serviceEdits = map[string]func(*corev1.Service){
	"selector": func(s *corev1.Service) {
		s.Spec.Selector = map[string]string{"app": "demo", v1alpha1.DefaultNodeLabelKey: "elsewhere"}
	},
	"ports":  func(s *corev1.Service) { s.Spec.Ports = []corev1.ServicePort{{Port: 99}} },
	"labels": func(s *corev1.Service) { s.Labels = nil },
	"node":   func(s *corev1.Service) { delete(s.Annotations, v1alpha1.NodeAnnotationKey) },
	"owner":  func(s *corev1.Service) { s.OwnerReferences = nil },
	"keep":   func(s *corev1.Service) { s.OwnerReferences, s.Labels = nil, nil },
	"theirs": func(s *corev1.Service) {
		metav1.SetMetaDataLabel(&s.ObjectMeta, "example.com/theirs", "1")
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, "example.com/theirs", "1")
	},
	"as-n0": func(s *corev1.Service) { // has the values of n0 for the variables in specs
		if s.Labels["team"] != "" && s.Annotations["example.com/note"] != "" {
			s.Labels["team"], s.Annotations["example.com/note"] = "of-n0", "n0 is not $(NODE_NAME)"
		}
	},
	"finalizer": func(s *corev1.Service) { s.Finalizers = []string{finalizer} },
	"release":   func(s *corev1.Service) { s.Finalizers = nil },
	"selects":   func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "demo"} },
}

// some returns the key of a step if such an object exists or, if there is none, that of another one of its namespace.
func some[T Object](w *world, on string) metav1.ObjectMeta {
	key := metaOf(on)
	all := slices.DeleteFunc(List[T](w.server), func(object T) bool { return object.GetNamespace() != key.Namespace })
	isKey := func(object T) bool { return object.GetName() == key.Name }
	if len(all) > 0 && !slices.ContainsFunc(all, isKey) {
		key.Name = all[hash(on)%uint64(len(all))].GetName()
	}
	return key
}

// dropService deletes a Service. If that is the Source, the copies of its EndpointSlices stay until its successor has
// existed for a while.
func dropService(w *world, s Step) error {
	w.disturb(settling, settleTime)
	return w.remove(&corev1.Service{ObjectMeta: some[*corev1.Service](w, s.On)})
}

func editService(w *world, s Step) error {
	if s.How == "selects" {
		w.disturb(settling, settleTime) // What Kubernetes then publishes is deleted once the Source is old enough.
	}
	key := some[*corev1.Service](w, s.On)
	if w.guard.isUpdated("services", keyOf(&key)) {
		w.disturb(0, retryTime)
	}
	return Update(w.server, userName, key.Namespace, key.Name, serviceEdits[s.How])
}

// editSlice changes or, without How, deletes the first EndpointSlice of a Service.
func editSlice(w *world, s Step) error {
	key := metaOf(s.On)
	all := List[*discoveryv1.EndpointSlice](w.server)
	i := slices.IndexFunc(all, func(slice *discoveryv1.EndpointSlice) bool {
		return slice.Namespace == key.Namespace && slice.Labels[discoveryv1.LabelServiceName] == key.Name
	})
	switch {
	case i < 0:
		return fmt.Errorf("no slice of %s", s.On)
	case s.How == "":
		return w.remove(all[i])
	}
	if w.guard.isUpdated("endpointslices", keyOf(all[i])) {
		w.disturb(0, retryTime)
	}
	return Update(w.server, userName, key.Namespace, all[i].Name, func(slice *discoveryv1.EndpointSlice) {
		switch s.How {
		case "labels":
			delete(slice.Labels, v1alpha1.HostnamesLabelKey)
		case "owner":
			slice.OwnerReferences = nil
		case "endpoints":
			slice.Endpoints = nil
		}
	})
}

// setAdmission sets a plug-in or, without How, none.
func setAdmission(w *world, s Step) error {
	if w.server.Admit(plugins[s.How]); s.How == "" {
		w.calm()
	} else {
		w.disturb(untilEnded, retryTime)
	}
	return nil
}

// oppose sets a controller that wants something else or, without How, none.
func oppose(w *world, s Step) error {
	if w.server.Oppose(plugins[s.How]); s.How == "" {
		w.calm()
	} else {
		w.disturb(untilEnded, retryTime)
	}
	return nil
}

func setQuota(w *world, s Step) error {
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.On, Name: "services"}}
	_ = w.remove(quota) // There may be none.
	if s.How == "" {
		return nil
	}
	quota.Spec.Hard = corev1.ResourceList{"count/services": resource.MustParse(s.How)}
	return w.server.Create(userName, quota)
}
