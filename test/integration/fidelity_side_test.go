package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

// side is one of the API servers, with what is known of it. Values that it generates are compared by their numbers.
type side struct {
	kube   kubernetes.Interface
	ours   clientset.Interface
	meta   metadata.Interface
	known  map[string]known
	madeUp map[string][]string
}

// known is the object that a side has, nil for none.
type known struct {
	object         metav1.Object
	uid            types.UID
	version, stale string
}

// newSide makes clients as the controllers do.
func newSide(config *rest.Config) (*side, error) {
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	ours, err1 := clientset.NewForConfig(config)
	meta, err2 := metadata.NewForConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err3 := kubernetes.NewForConfig(config)
	return &side{kube: kube, ours: ours, meta: meta, known: map[string]known{}, madeUp: map[string][]string{}},
		errors.Join(err1, err2, err3)
}

// ask makes a request, and returns what to compare: the answer, and what is stored afterwards.
func (s *side) ask(ctx context.Context, r *request) map[string]any {
	key := r.kind + r.namespace + "/" + r.name
	was := s.known[key]
	answer, err := r.do(ctx, s, was)
	outcome := outcomeOf(err)
	outcome["isUID"] = r.kind == "pods" && isAboutUID(err) // Of others nobody asks.
	if err == nil {
		outcome["answer"] = s.plain(answer, was)
	}
	stored, err := r.get(ctx, s)
	if err != nil {
		outcome["stored"] = outcomeOf(err)["reason"]
		delete(s.known, key)
		return outcome
	}
	outcome["stored"] = s.plain(stored, was)
	now := known{object: stored, uid: stored.GetUID(), version: stored.GetResourceVersion(), stale: was.stale}
	if now.version != was.version {
		now.stale = was.version
	}
	s.known[key] = now
	return outcome
}

// outcomeOf returns what the controllers read from an error.
func outcomeOf(err error) map[string]any {
	if err == nil {
		return map[string]any{"code": 200}
	}
	status, isStatus := errors.AsType[*apierrors.StatusError](err)
	if !isStatus {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"code": int(status.ErrStatus.Code), "reason": string(status.ErrStatus.Reason),
		"message":       status.ErrStatus.Message,
		"isTerminating": apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)}
}

func isAboutUID(err error) bool {
	status, isStatus := errors.AsType[*apierrors.StatusError](err)
	return isStatus && status.ErrStatus.Details != nil && slices.ContainsFunc(status.ErrStatus.Details.Causes,
		func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" })
}

// plain returns a value as JSON, without what always differs between API servers.
func (s *side) plain(value any, was known) any {
	object, isObject := value.(metav1.Object)
	if !isObject {
		return value
	}
	encoded, err := json.Marshal(value)
	var out map[string]any
	if err := errors.Join(err, json.Unmarshal(encoded, &out)); err != nil {
		return err.Error()
	}
	delete(out, "kind")
	delete(out, "apiVersion")
	meta, _ := out["metadata"].(map[string]any)
	delete(meta, "managedFields")
	switch {
	case object.GetResourceVersion() == "":
		delete(meta, "resourceVersion")
	case object.GetResourceVersion() == was.version || was.object != nil && looksSame(was.object, object):
		meta["resourceVersion"] = "as it was"
	default:
		meta["resourceVersion"] = "another"
	}
	uid := string(object.GetUID())
	meta["uid"] = s.number("uid", uid)
	meta["name"] = nameOf(object)
	for _, key := range []string{"creationTimestamp", "deletionTimestamp"} {
		if meta[key] != nil {
			meta[key] = "a time"
		}
	}
	switch object.(type) {
	case *corev1.Pod: // Other plug-ins and defaults change much of it, which is no matter for its labels.
		return map[string]any{"metadata": meta}
	case *appsv1.ReplicaSet: // The defaults of its template are no matter for its selector.
		return map[string]any{"metadata": meta, "selector": out["spec"].(map[string]any)["selector"]}
	case *corev1.Service:
		s.numberAllocated(uid, out["spec"].(map[string]any))
	}
	return out
}

// looksSame reports whether a write has changed nothing that the simulation models: a client has set a field to its
// current value, and manages it now; or the default of a new LocalService's status, which was only returned, is stored.
func looksSame(before, after metav1.Object) bool {
	ls, isOurs := after.(*v1alpha1.LocalService)
	isNew := isOurs && ls.Status.ObservedGeneration == -1
	if !isNew && reflect.DeepEqual(before.GetManagedFields(), after.GetManagedFields()) {
		return false
	}
	without := func(object metav1.Object) metav1.Object {
		out := object.(runtime.Object).DeepCopyObject().(metav1.Object)
		out.SetManagedFields(nil)
		out.SetResourceVersion("")
		return out
	}
	return apiequality.Semantic.DeepEqual(without(before), without(after))
}

// numberAllocated replaces what is allocated for a Service by numbers, one for each address and port.
func (s *side) numberAllocated(uid string, spec map[string]any) {
	replace := func(fields map[string]any, key string) {
		if value := fields[key]; value != nil && value != corev1.ClusterIPNone && value != "" {
			fields[key] = s.number(key+" of "+uid, fmt.Sprint(value))
		}
	}
	replace(spec, "clusterIP")
	if addresses, has := spec["clusterIPs"].([]any); has {
		for i := range addresses {
			if addresses[i] != corev1.ClusterIPNone {
				addresses[i] = s.number("clusterIP of "+uid, fmt.Sprint(addresses[i]))
			}
		}
	}
	ports, _ := spec["ports"].([]any)
	for _, port := range ports {
		replace(port.(map[string]any), "nodePort")
	}
}

// number returns how many values of a kind were seen before this one.
func (s *side) number(kind, value string) string {
	seen := s.madeUp[kind]
	i := slices.Index(seen, value)
	if i < 0 {
		i = len(seen)
		s.madeUp[kind] = append(seen, value)
	}
	return fmt.Sprint("#", i)
}
