package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/localservice-dev/local-service-controller/internal/app"
	"github.com/localservice-dev/local-service-controller/internal/testing/objects"
	"github.com/localservice-dev/local-service-controller/internal/testing/simulation"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func onReadError(ctx context.Context, resource string, err error) {
	klog.FromContext(ctx).Error(err, "Cannot read", "resource", resource)
}

func onRestore(err error) { panic(err) }

// abbreviate describes a write. Controllers write only the status of LocalServices.
func abbreviate(verb, resource string, object metav1.Object) string {
	if ls, ok := object.(*v1alpha1.LocalService); ok {
		return fmt.Sprintf("%s %s/status %s%s", verb, resource, ls.Name, summaryOf(&ls.Status))
	}
	return fmt.Sprintf("%s %s %s", verb, resource, object.GetName())
}

// summaryOf abbreviates a status to its counts and the conditions that are True.
func summaryOf(status *v1alpha1.LocalServiceStatus) string {
	var is []string
	for _, c := range status.Conditions {
		if c.Status == metav1.ConditionTrue {
			is = append(is, c.Type)
		}
		if c.Type == v1alpha1.ConditionReady && c.Status != metav1.ConditionTrue {
			is = append(is, "not Ready: "+c.Reason)
		}
	}
	return fmt.Sprintf(" %d/%d %s", status.Services, status.Nodes, strings.Join(is, ", "))
}

func expect(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// cluster is a simulated API server with the namespace default, and an instance of the controllers, in a bubble of fake
// time.
type cluster struct {
	t        *testing.T
	server   *simulation.APIServer
	endpoint *simulation.Endpoint
	options  app.Options
	deps     app.Dependencies // of the instance that was started last
	running  *controllers     // that start has made last
	asked    int              // how many requests of instances the test has looked at

	mu       sync.Mutex
	written  []string
	statuses []v1alpha1.LocalServiceStatus
	events   []string
}

const instance = "replica1"

// inCluster calls do in a bubble with a cluster.
func inCluster(t *testing.T, do func(t *testing.T, c *cluster), objects ...simulation.Object) {
	t.Helper()
	simulated() // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, server: simulation.NewAPIServer(1000), options: *simulated()}
		c.endpoint = c.server.NewEndpoint(instance, 1)
		c.server.Observe(c.observe)
		c.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
		c.create(objects...)
		do(t, c)
	})
}

// observe records a write of an instance.
func (c *cluster) observe(w simulation.Write) {
	if w.By != instance {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	object := w.After
	if object == nil {
		object = w.Before
	}
	c.written = append(c.written, abbreviate(w.Verb(), w.Resource, object))
	if ls, ok := w.After.(*v1alpha1.LocalService); ok {
		c.statuses = append(c.statuses, ls.Status)
	}
}

func (c *cluster) record(_, eventType, reason, note string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%s %s %s", eventType, reason, note))
}

// start runs an instance of the controllers until stop is called, or the end of the test.
func (c *cluster) start() (stop func()) {
	c.t.Helper()
	return c.run(func(deps app.Dependencies) func(context.Context) {
		c.running = newControllers(deps)
		return c.running.run
	})
}

// run runs some controllers until stop is called, or the end of the test.
func (c *cluster) run(newControllers func(app.Dependencies) (work func(context.Context))) (stop func()) {
	c.t.Helper()
	log := funcr.New(func(_, line string) { c.t.Log(line) }, funcr.Options{})
	ctx, cancel := context.WithCancel(klog.NewContext(c.t.Context(), log))
	deps, err := app.NewDependencies(c.endpoint.Config(), &c.options, onReadError, onRestore)
	if err != nil {
		c.t.Fatal(err)
	}
	deps.Clock, deps.Record = quietClock{}, app.RecordTo(recorder{c.record})
	work := newControllers(deps)
	c.deps = deps
	wait := deps.Caches.Start(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		defer wait()
		deps.Caches.WaitForSync(ctx)
		work(ctx)
	}()
	stop = func() {
		cancel()
		<-stopped
	}
	c.t.Cleanup(stop)
	settle()
	return stop
}

// settle waits until nobody has anything to do, except for retries that are due later.
func settle() {
	time.Sleep(3 * time.Second) // of fake time
	synctest.Wait()
}

// waitUntil waits until something is so, not more than a millisecond longer: no watch has reported it yet.
func (c *cluster) waitUntil(is func() bool) {
	c.t.Helper()
	for range 10000 {
		if is() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatal("it does not happen")
}

// answer makes the API server ask what to answer to requests about a resource: an error, or nil to carry them out. how
// may be called by several goroutines at a time.
func (c *cluster) answer(verb, resource string, how func(name string) error) {
	c.endpoint.Fail(simulation.Fault{Verb: verb, Resource: resource, Until: time.Now().AddDate(1, 0, 0),
		Answer: how})
}

// answerUntil makes the API server answer so to requests about a resource until over is called.
func (c *cluster) answerUntil(verb, resource string, how func(name string) error) (over func()) {
	var isOver atomic.Bool
	c.answer(verb, resource, func(name string) error {
		if isOver.Load() {
			return nil
		}
		return how(name)
	})
	return func() { isOver.Store(true) }
}

// refuseUntil makes the API server refuse writes of a resource until over is called.
func (c *cluster) refuseUntil(verb, resource string) (over func()) {
	return c.answerUntil(verb, resource, func(name string) error {
		return apierrors.NewForbidden(corev1.Resource(resource), name, errors.New("quota"))
	})
}

const userName = "user"

// create creates objects for a user.
func (c *cluster) create(objects ...simulation.Object) {
	c.t.Helper()
	for _, o := range objects {
		o = o.DeepCopyObject().(simulation.Object)
		o.SetResourceVersion("")
		if err := c.server.Create(userName, o); err != nil {
			c.t.Fatal(err)
		}
	}
}

// remove deletes an object for a user.
func (c *cluster) remove(o simulation.Object) {
	c.t.Helper()
	if err := c.server.Delete(userName, o, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		c.t.Fatal(err)
	}
}

func namespaceOf(o simulation.Object) string {
	if _, isNode := o.(*corev1.Node); isNode {
		return ""
	}
	return "default"
}

// get returns an object as the API server has it, nil if there is none.
func get[T simulation.Object](c *cluster, name string) (object T) {
	return simulation.Get[T](c.server, namespaceOf(object), name)
}

// edit changes an object for a user.
func edit[T simulation.Object](c *cluster, name string, change func(T), subresource ...string) {
	c.t.Helper()
	var object T
	if err := simulation.Update(c.server, userName, namespaceOf(object), name, change, subresource...); err != nil {
		c.t.Fatal(err)
	}
}

// label gives a node other labels.
func (c *cluster) label(node string, labels ...string) {
	c.t.Helper()
	edit(c, node, func(n *corev1.Node) { n.Labels = testNode(node, labels...).Labels })
}

// editSpec changes the LocalService, and waits for the consequences.
func (c *cluster) editSpec(change func(*v1alpha1.LocalService)) {
	c.t.Helper()
	edit(c, "demo", change)
	settle()
}

// services returns the existing Services, by name.
func (c *cluster) services() map[string]*corev1.Service {
	found := map[string]*corev1.Service{}
	for _, s := range simulation.List[*corev1.Service](c.server) {
		found[s.Name] = s
	}
	return found
}

// writes returns the writes since the last call, abbreviated and sorted.
func (c *cluster) writes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.written = nil }()
	slices.Sort(c.written)
	return c.written
}

// reported returns all statuses that were written.
func (c *cluster) reported() []v1alpha1.LocalServiceStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.statuses)
}

// recorded returns the events since the last call.
func (c *cluster) recorded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.events = nil }()
	return c.events
}

// requests returns the requests since the last call, without watches.
func (c *cluster) requests() []string {
	var out []string
	all := c.endpoint.Requests(time.Time{})
	for _, r := range all[c.asked:] {
		out = append(out, r.What)
	}
	c.asked = len(all)
	return out
}

// sent returns how many requests there were since the last call to write objects of a resource, whatever the answer.
func (c *cluster) sent(resource string) (n int) {
	for _, request := range c.requests() {
		words := strings.Fields(request)
		if words[0] != "get" && words[0] != "list" && words[1] == resource && !strings.HasSuffix(request, "(dry run)") {
			n++
		}
	}
	return n
}

// wantMessage checks that the message of the condition Ready has a text.
func (c *cluster) wantMessage(text string) {
	c.t.Helper()
	conditions := get[*v1alpha1.LocalService](c, "demo").Status.Conditions
	if got := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady).Message; !strings.Contains(got, text) {
		c.t.Errorf("the message of Ready is %q, want %q", got, text)
	}
}

// wantReady checks the condition Ready and the numbers, abbreviated.
func (c *cluster) wantReady(want string) {
	c.t.Helper()
	status := get[*v1alpha1.LocalService](c, "demo").Status
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	got := fmt.Sprintf("%s %s %s, %d Services", ready.Status, ready.Reason, status.Ready, status.Services)
	if got != want {
		c.t.Errorf("%s, want %s", got, want)
	}
}

var (
	testLocalService = objects.LocalService
	hostnamesMode    = objects.HostnamesMode
	onSSD            = objects.Selecting("disk=ssd")
	testNode         = objects.Node
	testSlice        = objects.EndpointSlice
)

// withNodes returns objects and n nodes.
func withNodes(n int, objects ...simulation.Object) []simulation.Object {
	for i := range n {
		objects = append(objects, testNode(fmt.Sprintf("node%02d", i)))
	}
	return objects
}
