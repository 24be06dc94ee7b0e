package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// APIServer is a simulated API server: the storage, and what the API does to each object before it is stored. Requests
// come in through an Endpoint; the actors of a history call Create, Update and Delete.
type APIServer struct {
	mu        sync.Mutex
	version   int64 // the resource version of the last write, of all resources
	written   int   // the number of writes, without leases and events, which are most at rest
	uids      int
	tables    map[string]*table // by the plural name of the resource
	byType    map[reflect.Type]*table
	addresses *pool
	nodePorts *pool
	admission Admission
	opponent  Admission                // changes what replicas have written, some time later
	isLenient atomic.Bool              // stores what the CustomResourceDefinition refuses, and an older one accepted
	slow      map[string]slowAdmission // by namespace
	// distance is how much longer each request takes, and how late watches are, than near the API server.
	distance time.Duration

	outage    outage
	endpoints []*Endpoint

	// Observers are called after each write that has taken place, after each that was refused, before each request of a
	// replica that is carried out, and after each but a watch that was answered or given up. They may call list, but no
	// method of the API server. Requests that fail because of a fault are not carried out.
	observers []func(Write)
	refusals  []func(refused)
	requests  []func(by string, r *request)
	answers   []func(by string, a answered)
	changed   chan struct{} // closed at the next write that concerns the cluster's own controllers
}

// table is all that is stored of one resource. Objects are never changed once they are stored.
type table struct {
	*definition
	objects map[types.NamespacedName]*entry
	order   []*entry // by namespace and name, nil if that is not known
	log     []change // all writes since the beginning
	// compacted is the resource version below which no watch can begin.
	compacted int64
	changed   chan struct{} // closed at the next write
}

// change is one write of an object: before is nil if it was created, after is nil if it was removed.
type change struct {
	version       int64
	at            time.Time
	before, after *entry
}

// Write is a write that has taken place. By says who made it: the name of a replica, or of an actor.
type Write struct {
	By            string
	Resource      string
	Key           types.NamespacedName
	Before, After Object
}

// refused is a request that the API server has refused by itself, not because of a fault.
type refused struct {
	*request
	by   string
	sent Object // the object to create
	err  error
}

// answered is a request that has ended for the replica.
type answered struct {
	*request
	took time.Duration
	// failed is whether it has not had the effect that it asked for, or the replica does not know that.
	failed bool
}

// Verb returns what the write did.
func (w *Write) Verb() string {
	switch {
	case w.Before == nil:
		return "create"
	case w.After == nil:
		return "delete"
	}
	return "update"
}

// NewAPIServer returns an empty API server. addresses is the number of cluster IPs, and of node ports.
func NewAPIServer(addresses int) *APIServer {
	s := &APIServer{version: 1, tables: map[string]*table{}, byType: map[reflect.Type]*table{},
		changed: make(chan struct{}), addresses: newPool(addresses), nodePorts: newPool(addresses),
		slow: map[string]slowAdmission{}}
	for i := range resources {
		t := &table{definition: &resources[i], objects: map[types.NamespacedName]*entry{}, changed: make(chan struct{})}
		s.tables[t.name], s.byType[reflect.TypeOf(t.newObject())] = t, t
	}
	return s
}

// usualLag returns how long after a write a watch reports it, without faults. Every resource has its own, so that what
// happens next does not depend on which of two watches is read first.
func usualLag(resource string) time.Duration {
	return 5*time.Millisecond + time.Duration(hash(resource)%uint64(time.Millisecond))
}

// isReplica reports whether a writer is a replica of the controllers, according to its name.
func isReplica(by string) bool { return strings.HasPrefix(by, "replica") }

// Observe calls observer after each write that has taken place.
func (s *APIServer) Observe(observer func(Write)) { s.observers = append(s.observers, observer) }

// Get returns a copy of an object, nil if there is none.
func Get[T Object](s *APIServer, namespace, name string) (object T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tableOf(object)
	if e := t.objects[types.NamespacedName{Namespace: namespace, Name: name}]; e != nil {
		return e.object.DeepCopyObject().(T)
	}
	return object
}

// List returns the objects of a resource, by namespace and name. They must not be changed.
func List[T Object](s *APIServer) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return list[T](s)
}

// list is List for observers.
func list[T Object](s *APIServer) []T {
	var zero T
	var out []T
	for _, e := range s.tableOf(zero).sorted() {
		out = append(out, e.object.(T))
	}
	return out
}

func (s *APIServer) tableOf(object Object) *table {
	if t := s.byType[reflect.TypeOf(object)]; t != nil {
		return t
	}
	panic(fmt.Sprintf("no resource has objects of type %T", object))
}

// sorted returns all objects by namespace and name. The result must not be changed.
func (t *table) sorted() []*entry {
	if t.order == nil {
		t.order = slices.SortedFunc(maps.Values(t.objects), func(a, b *entry) int {
			return cmp.Or(cmp.Compare(a.object.GetNamespace(), b.object.GetNamespace()),
				cmp.Compare(a.object.GetName(), b.object.GetName()))
		})
	}
	return t.order
}

// Create creates an object for an actor.
func (s *APIServer) Create(by string, object Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.create(by, s.tableOf(object), object.DeepCopyObject().(Object), false)
	return err
}

// Update changes an object, or a subresource of it, for an actor. It returns an error if there is none.
func Update[T Object](s *APIServer, by, namespace, name string, change func(T), subresource ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var zero T
	u := update{table: s.tableOf(zero), by: by, key: types.NamespacedName{Namespace: namespace, Name: name},
		subresource: strings.Join(subresource, "/")}
	_, err := s.update(u, func(old Object) (Object, error) {
		object := old.DeepCopyObject().(T)
		change(object)
		return object, nil
	})
	return err
}

// Delete deletes an object for an actor.
func (s *APIServer) Delete(by string, object Object, options metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.delete(by, s.tableOf(object), keyOf(object), &options)
}

func keyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// create stores a new object, or with dryRun only says whether it would. s.mu must be held, as for all functions below.
func (s *APIServer) create(by string, t *table, object Object, dryRun bool) (Object, error) {
	if object.GetName() == "" && object.GetGenerateName() != "" {
		s.uids++
		object.SetName(object.GetGenerateName() + fmt.Sprintf("%05x", s.uids))
	}
	object.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	object.SetDeletionTimestamp(nil)
	object.SetDeletionGracePeriodSeconds(nil)
	object.SetManagedFields(nil)
	s.uids++
	object.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.uids)))
	s.admit(t, by, object)
	if t.prepareCreate != nil {
		if err := t.prepareCreate(s, object); err != nil {
			return nil, err
		}
	}
	if object.GetResourceVersion() != "" && !dryRun {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500,
			Message: "resourceVersion should not be set on objects to be created"}}
	}
	key := keyOf(object)
	if t.objects[key] != nil {
		return nil, apierrors.NewAlreadyExists(t.groupResource(), key.Name)
	}
	if t.afterCreate != nil {
		if err := t.afterCreate(s, object, dryRun); err != nil {
			return nil, err
		}
	}
	if !dryRun {
		s.commit(by, t, key, nil, object)
	}
	return object, nil
}

// update says which object to update, and for whom.
type update struct {
	*table
	by          string
	key         types.NamespacedName
	subresource string
}

// update stores what change returns for an object. change must not modify its argument.
func (s *APIServer) update(u update, change func(old Object) (Object, error)) (Object, error) {
	stored := u.objects[u.key]
	if stored == nil {
		return nil, apierrors.NewNotFound(u.groupResource(), u.key.Name)
	}
	old := stored.object
	object, err := change(old)
	if err != nil {
		return nil, err
	}
	if version := object.GetResourceVersion(); version != old.GetResourceVersion() {
		if version != "" {
			return nil, apierrors.NewConflict(u.groupResource(), u.key.Name, fmt.Errorf(
				"the object has been modified; please apply your changes to the latest version and try again"))
		}
		if u.needsVersion {
			return nil, u.invalid(u.key.Name, field.Invalid(field.NewPath("metadata", "resourceVersion"), 0,
				"must be specified for an update"))
		}
		object.SetResourceVersion(old.GetResourceVersion())
	}
	if err := u.keepMetadata(old, object); err != nil {
		return nil, err
	}
	if u.prepareUpdate != nil {
		if err := u.prepareUpdate(s, u.subresource, old, object); err != nil {
			return nil, err
		}
	}
	s.admit(u.table, u.by, object)
	if apiequality.Semantic.DeepEqual(old, object) {
		return old, nil
	}
	if u.afterUpdate != nil {
		if err := u.afterUpdate(s, old, object); err != nil {
			return nil, err
		}
	}
	if old.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 && u.name != "pods" {
		s.commit(u.by, u.table, u.key, stored, nil)
		return object, nil
	}
	s.commit(u.by, u.table, u.key, stored, object)
	return object, nil
}

// wake wakes the watches of the resource, to look for changes.
func (t *table) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// commit makes a write take place.
func (s *APIServer) commit(by string, t *table, key types.NamespacedName, before *entry, object Object) {
	s.version++
	write := Write{By: by, Resource: t.name, Key: key}
	c := change{version: s.version, at: time.Now(), before: before}
	if before != nil {
		write.Before = before.object
	}
	if object == nil {
		delete(t.objects, key)
		if service, ok := write.Before.(*corev1.Service); ok {
			s.releaseService(service)
		}
	} else {
		object.SetResourceVersion(strconv.FormatInt(s.version, 10))
		object.GetObjectKind().SetGroupVersionKind(t.kind)
		c.after = &entry{object: object}
		t.objects[key] = c.after
		write.After = object
	}
	t.log, t.order = append(t.log, c), nil
	t.wake()
	if t.name != "leases" && t.name != "events" {
		s.written++
	}
	if concernsManager(&write) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	for _, observe := range s.observers {
		observe(write)
	}
}
