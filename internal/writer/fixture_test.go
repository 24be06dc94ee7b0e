package writer

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"
	clientcache "k8s.io/client-go/tools/cache"

	"github.com/localservice-dev/local-service-controller/internal/cache"
	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var (
	services  = corev1.Resource("services")
	forbidden = apierrors.NewForbidden(services, "x", errors.New("exceeded quota"))
	exists    = apierrors.NewAlreadyExists(services, "x")
	conflict  = apierrors.NewConflict(services, "x", errors.New("changed"))
	notFound  = apierrors.NewNotFound(services, "x")
)

// denied returns the error with which RBAC denies a request.
func denied() error {
	return apierrors.NewForbidden(services, "x",
		errors.New(`User "u" cannot create resource "services" in API group "" in the namespace "a"`))
}

// terminatingError is the error with which the API server refuses to create anything in a namespace that is being
// deleted.
func terminatingError() error {
	err := apierrors.NewForbidden(services, "x", errors.New("the namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// noLabel says that nodes have no labels.
func noLabel(string, string) (value string, exists bool) { return "", false }

// inOrder keeps the order of changes.
func inOrder(int, func(i, j int)) {}

// fixture is an API server with a LocalService, which the cache knows, and with no nodes.
type fixture struct {
	t         *testing.T
	ls        *v1alpha1.LocalService
	live      *metav1.PartialObjectMetadata // the LocalService as the API server has it
	cached    clientcache.Indexer           // of LocalServices
	kube      *fake.Clientset
	deps      Dependencies
	templates plan.Templates

	// answer returns the error with which the API server answers a request about a Service, which is abbreviated. Its
	// changes of the Service are stored.
	answer func(request string, service *corev1.Service) error
	// onNode is called when a node is read.
	onNode func(name string) error

	// managed is who has set which fields of each object.
	managed []metav1.ManagedFieldsEntry
	// version is that of each Service on the API server.
	version string

	// isAwaited is true if somebody waits for the end of a turn.
	isAwaited bool

	mu       sync.Mutex
	requests []string
}

func newFixture(t *testing.T, concurrency int, edit ...func(*v1alpha1.LocalService)) *fixture {
	t.Helper()
	f := &fixture{t: t, ls: objects.LocalService(edit...), kube: fake.NewClientset(),
		answer: func(string, *corev1.Service) error { return nil }, version: "7",
		onNode: func(name string) error { return apierrors.NewNotFound(corev1.Resource("nodes"), name) }}
	f.live = &metav1.PartialObjectMetadata{ObjectMeta: *f.ls.ObjectMeta.DeepCopy()}
	metadata := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	metadata.PrependReactor("get", "localservices", func(core.Action) (bool, runtime.Object, error) {
		return true, f.live, nil
	})
	metadata.PrependReactor("get", "nodes", func(a core.Action) (bool, runtime.Object, error) {
		return true, &metav1.PartialObjectMetadata{}, f.onNode(a.(core.GetAction).GetName())
	})
	metadata.PrependReactor("list", "*", func(core.Action) (bool, runtime.Object, error) {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: f.managed,
			ResourceVersion: f.version}}
		return true, &metav1.List{Items: []runtime.RawExtension{{Object: object}}}, nil
	})
	f.kube.PrependReactor("*", "services", f.react)
	caches := cache.New(cache.Options{Kube: f.kube, Metadata: metadata, NodeLabelKey: v1alpha1.DefaultNodeLabelKey,
		Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())})
	f.cached = caches.LocalServices.Indexer(metav1.NamespaceAll)
	f.cache(f.ls)
	f.deps = Dependencies{Kube: f.kube, Metadata: metadata, Caches: caches, Observed: cache.NewObserved(),
		Refusals: NewRefusals(), Pool: make(Pool, concurrency), Shuffle: inOrder}
	var err error
	if f.templates, err = plan.NewTemplates(f.ls, v1alpha1.DefaultNodeLabelKey, noLabel); err != nil {
		t.Fatal(err)
	}
	return f
}

// cache adds a LocalService to the cache.
func (f *fixture) cache(ls *v1alpha1.LocalService) {
	if err := f.cached.Add(ls.DeepCopy()); err != nil {
		f.t.Error(err)
	}
}

// nextGeneration changes the spec. The cache observes that at once.
func (f *fixture) nextGeneration() {
	f.ls = f.ls.DeepCopy()
	f.ls.Generation++
	f.live.Generation++
	f.cache(f.ls)
}

func (f *fixture) react(a core.Action) (bool, runtime.Object, error) {
	var service *corev1.Service
	request, name := a.GetVerb(), ""
	switch a := a.(type) {
	case core.CreateActionImpl:
		service = objects.Stored(a.Object.(*corev1.Service))
		name = service.Name
	case core.PatchActionImpl:
		name = a.Name
		service = objects.Stored(f.templates[0].Service(strings.TrimPrefix(name, "demo-")))
	case core.DeleteActionImpl:
		name = a.Name
		f.checkPreconditions(&a)
	default:
		return false, nil, nil
	}
	request += " " + name
	f.mu.Lock()
	f.requests = append(f.requests, request)
	f.mu.Unlock()
	return true, service, f.answer(request, service)
}

// checkPreconditions checks that a deletion names what the plan has seen: a successor, or a later version, may belong
// to another object.
func (f *fixture) checkPreconditions(a *core.DeleteActionImpl) {
	if p := a.DeleteOptions.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
		f.t.Errorf("a deletion of %s on condition that %+v", a.Name, p)
	}
}

// took returns the requests about Services since the last call.
func (f *fixture) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() { f.requests = nil }()
	return slices.Clone(f.requests)
}

// changes returns changes of the Services of nodes.
func (f *fixture) changes(action plan.Action, nodes ...string) (changes []plan.Change) {
	for _, node := range nodes {
		c := plan.Change{Action: action, Template: f.templates[0], Name: "demo-" + node, Node: node}
		if action != plan.Create {
			c.Current = plan.FromAPI(objects.Stored(f.templates[0].Service(node)), v1alpha1.DefaultNodeLabelKey)
		}
		changes = append(changes, c)
	}
	return changes
}

// planOf returns a plan with changes.
func planOf(changes ...[]plan.Change) *plan.Plan {
	p := &plan.Plan{Changes: map[plan.Action][]plan.Change{}}
	for _, change := range slices.Concat(changes...) {
		p.Changes[change.Action] = append(p.Changes[change.Action], change)
	}
	return p
}

// write makes changes. It also returns the requests that they took.
func (f *fixture) write(changes ...[]plan.Change) (outcome, []string) {
	f.t.Helper()
	out := f.deps.WriteServices(f.t.Context(), f.ls, planOf(changes...), func() bool { return f.isAwaited })
	checkTokens(f.t, f.deps.Pool)
	return outcome{out}, f.took()
}

// outcome is an Outcome with what follows from it.
type outcome struct{ plan.Outcome }

func (o *outcome) Err(key types.NamespacedName) error { return Err(&o.Outcome, key) }

// contested returns the fields that something else sets.
func (o *outcome) contested() sets.Set[string] {
	fields := sets.Set[string]{}
	for _, err := range o.Refused {
		if contested, is := errors.AsType[*plan.ContestedError](err); is {
			fields.Insert(contested.Fields...)
		}
	}
	return fields
}

// counts summarizes a turn.
type counts struct {
	Requests, Stored, Deleted, Refused, Failed, Stale int
	RetryAfter                                        time.Duration
	More, Stopped, Err                                bool
}

// expect makes changes, and checks what the turn has made.
func (f *fixture) expect(when string, want counts, changes ...[]plan.Change) (outcome, []string) {
	f.t.Helper()
	out, requests := f.write(changes...)
	f.compare(when, want, out, requests)
	return out, requests
}

func (f *fixture) compare(when string, want counts, out outcome, requests []string) {
	f.t.Helper()
	got := counts{Requests: len(requests), Stored: out.Stored(), Deleted: len(out.Made[plan.Delete]),
		Refused: len(out.Refused), Failed: len(out.Failed), Stale: len(out.Stale), RetryAfter: out.RetryAfter.Round(time.Second),
		More: out.More, Stopped: out.Stopped != nil, Err: out.Err(cache.KeyOf(f.ls)) != nil}
	if diff := cmp.Diff(want, got); diff != "" {
		f.t.Errorf("%s (-want +got):\n%s%v: %+v", when, diff, requests, out)
	}
}

// refusing makes the API server refuse the requests that begin with a prefix.
func (f *fixture) refusing(err error, prefixes ...string) {
	f.answer = func(request string, _ *corev1.Service) error {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(request, prefix) }) {
			return err
		}
		return nil
	}
}
