package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// rival is another controller that wants something else of an object of ours.
type rival struct {
	resource string // of the object
	patch    string // sets what the rival wants
	field    string // that the status or the event names
}

const (
	// fightTime is how long the rival sets back what is written, in which there may be mostWrites of each object.
	fightTime  = 20 * time.Second
	mostWrites = 4
	// mostEvents is how many events there may be then.
	mostEvents = 10
)

// TestOthersWill: what somebody else wants of our objects is neither fought nor left wrong.
func TestOthersWill(t *testing.T) {
	t.Parallel()
	cluster := framework.NewCluster(t, publisher())
	cluster.NewController(t, "-v=4")
	t.Run("rivals", func(t *testing.T) { t.Parallel(); testRivals(t, cluster) })
	t.Run("rivals of many", func(t *testing.T) { t.Parallel(); testRivalOfMany(t, cluster) })
	t.Run("owned but not wanted", func(t *testing.T) { t.Parallel(); testUnwanted(t, cluster) })
	t.Run("old copies in a quota", func(t *testing.T) { t.Parallel(); testCopiesInQuota(t, cluster) })
	t.Run("old copies in a fight", func(t *testing.T) { t.Parallel(); testCopiesInFight(t, cluster) })
	t.Run("a deleted EndpointSlice", func(t *testing.T) { t.Parallel(); testNameStays(t, cluster) })
}

// testUnwanted: Services with a LocalService as their controller that it does not want are deleted, whatever they are
// named, and do not count as those of the other mode.
func testUnwanted(t *testing.T, cluster *framework.Cluster) {
	for mode, names := range map[v1alpha1.Mode][]string{
		v1alpha1.ModeServices:  {"demo", plan.ServiceName("demo", plan.Source, ""), "demo-x", "other"},
		v1alpha1.ModeHostnames: {"demo-x", "other"},
	} {
		s := newScene(t, cluster, "unwanted")
		s.AddNodes("a")
		ls := s.CreateReady("demo", spec(headless, "mode: "+string(mode)))
		if mode == v1alpha1.ModeHostnames {
			names = append(names, "demo-"+s.NodeName("a"))
		}
		for _, name := range names {
			if _, err := s.ServiceClient().Get(s.Ctx(), name, metav1.GetOptions{}); err == nil {
				continue // It is one that is wanted.
			}
			service := framework.NewForeignService(name, nil)
			service.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ls,
				v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))}
			s.CreateService(service)
		}
		for _, name := range names {
			if name != "demo" || mode == v1alpha1.ModeServices {
				s.WaitServiceGone(name)
			}
		}
		s.WaitReady("demo")
	}
	s := newScene(t, cluster, "marked")
	s.AddNodes("a")
	ls := s.CreateReady("demo", spec(headless))
	copied := framework.NewForeignService("demo", map[string]string{v1alpha1.HostnamesLabelKey: v1alpha1.HostnamesPublished})
	copied.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ls,
		v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))}
	s.CreateService(copied)
	s.WaitNotReady("demo", v1alpha1.ReasonInvalidSpec, "Services of the other mode are deleted, such as demo")
}

// testCopiesInQuota: while a quota leaves no room for another EndpointSlice, the copy of one that is gone is deleted, so
// that the name follows the pod.
func testCopiesInQuota(t *testing.T, cluster *framework.Cluster) {
	s := newScene(t, cluster, "full")
	node := s.AddNodes("a")[0]
	s.CreateReady("demo", spec(headless, "mode: Hostnames"))
	s.run("before", node, "10.1.2.3")
	s.sliceOf("demo")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}}
	quota.Spec.Hard = corev1.ResourceList{"count/endpointslices.discovery.k8s.io": resource.MustParse("2")}
	_, err := s.Kube.CoreV1().ResourceQuotas(s.Namespace).Create(s.Ctx(), quota, metav1.CreateOptions{})
	s.Must(err)
	s.Eventually("the quota is counted", func(ctx context.Context) error {
		counted, err := s.Kube.CoreV1().ResourceQuotas(s.Namespace).Get(ctx, "full", metav1.GetOptions{})
		if err != nil {
			return err
		}
		used := counted.Status.Used["count/endpointslices.discovery.k8s.io"]
		return framework.Equal("used", used.String(), "2")
	})
	source := plan.ServiceName("demo", plan.Source, "")
	uid := s.GetService(source).UID
	s.Must(s.PodClient().Delete(s.Ctx(), "before", *metav1.NewDeleteOptions(0)))
	s.Must(s.ServiceClient().Delete(s.Ctx(), source, metav1.DeleteOptions{}))
	s.run("after", node, "10.1.2.4")
	s.WaitService(source, uid)
	s.waitAddresses("10.1.2.4") // The name leads to the new pod only.
}

// testCopiesInFight: while something else empties one copy, another one whose source is gone is deleted: its name must
// not lead to the address of a deleted pod.
func testCopiesInFight(t *testing.T, cluster *framework.Cluster) {
	s := newScene(t, cluster, "beside")
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo", spec(headless, "mode: Hostnames", targetName))
	s.runApart(nodes)
	published := s.waitAddresses("10.1.2.1", "10.1.2.2")
	first := published[slices.IndexFunc(published, func(slice discoveryv1.EndpointSlice) bool {
		return *slice.Endpoints[0].Hostname == nodes[0]
	})].Name
	r := rival{"endpointslices", `{"endpoints": []}`, "endpoints"}
	defer s.oppose(r, first)()
	s.waitContested(r, first)
	s.Must(s.PodClient().Delete(s.Ctx(), nodes[1], *metav1.NewDeleteOptions(0)))
	s.waitAddresses()
}

// testNameStays: somebody deletes one of the EndpointSlices in which Kubernetes publishes the pods. Until it has published
// that again, the name stays.
func testNameStays(t *testing.T, cluster *framework.Cluster) {
	s := newScene(t, cluster, "stays")
	nodes := s.AddNodes("a", "b")
	s.CreateReady("demo", spec(headless, "mode: Hostnames", targetName))
	s.runApart(nodes)
	s.waitAddresses("10.1.2.1", "10.1.2.2")
	client := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace)
	copies := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=demo"}
	list, err := client.List(s.Ctx(), copies)
	s.Must(err)
	published := map[string]string{} // the hostname in each EndpointSlice
	for _, slice := range list.Items {
		published[slice.Name] = *slice.Endpoints[0].Hostname
	}
	deleted := list.Items[0].Name
	s.Must(client.Delete(s.Ctx(), plan.SourceName(deleted), metav1.DeleteOptions{}))
	_, err = watchtools.Until(s.Ctx(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = copies.LabelSelector
			return client.Watch(ctx, options)
		}}, func(event watch.Event) (done bool, err error) {
		slice := event.Object.(*discoveryv1.EndpointSlice)
		if published[slice.Name] = ""; event.Type != watch.Deleted {
			published[slice.Name] = *slice.Endpoints[0].Hostname
		}
		for _, node := range nodes {
			if !slices.Contains(slices.Collect(maps.Values(published)), node) {
				err = fmt.Errorf("%s is not published: %v", node, published)
			}
		}
		return slice.Name == deleted && event.Type == watch.Deleted, err
	})
	s.Must(err)
}

// testRivals: another controller sets a field back each time that the controller writes it. Our controller writes less
// and less often, says who it is within 10 seconds, and once the other one has stopped the field is right within two
// minutes.
func testRivals(t *testing.T, cluster *framework.Cluster) {
	for name, r := range map[string]rival{
		"label":      {"services", `{"metadata": {"labels": {"team": "theirs"}}}`, "labels"},
		"annotation": {"services", `{"metadata": {"annotations": {"note": "theirs"}}}`, "annotations"},
		"selector":   {"services", `{"spec": {"selector": {"app": "theirs"}}}`, "selector"},
		"addresses":  {"endpointslices", `{"endpoints": []}`, "endpoints"},
		"node label": {"pods", `{"metadata": {"labels": {"` + nodeLabel + `": "theirs"}}}`, nodeLabel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, cluster, "rival")
			node := s.AddNodes("a")[0]
			mode := "mode: Services"
			if r.resource == "endpointslices" {
				mode = "mode: Hostnames"
			}
			s.CreateReady("demo", spec(headless, mode, "serviceMetadata: {labels: {team: ours}, annotations: {note: ours}}"))
			s.run("p", node, "10.1.2.3")
			object := map[string]string{"services": "demo-" + node, "pods": "p"}[r.resource]
			if r.resource == "endpointslices" {
				object = s.sliceOf("demo").Name
			} else {
				s.WaitLabelled("p", node)
			}
			s.ResetCount()
			began := time.Now()
			stop := s.oppose(r, object)
			s.waitContested(r, object)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("Contested after %s", took)
			}
			s.Eventually("the fight has lasted", func(context.Context) error {
				if left := fightTime - time.Since(began); left > 0 {
					return fmt.Errorf("%s are left", left)
				}
				return nil
			})
			writes := s.Requests().Resource(r.resource).Name(object).Writes()
			if len(writes) > mostWrites {
				t.Errorf("the controller's writes in %s: %s; want %d", fightTime, writes, mostWrites)
			}
			stop()
			s.waitOurs(r, object)
			if events := s.Requests().Resource("events").Verb("create"); len(events) > mostEvents {
				t.Errorf("%d events", len(events))
			}
		})
	}
}

// testRivalOfMany: with more nodes, there are no more events, once Contested says it.
func testRivalOfMany(t *testing.T, cluster *framework.Cluster) {
	s := newScene(t, cluster, "rivals")
	names := s.AddNodes("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t")
	for i := range names {
		names[i] = "demo-" + names[i]
	}
	s.CreateReady("demo", spec(headless, "serviceMetadata: {labels: {team: ours}}"))
	r := rival{"services", `{"metadata": {"labels": {"team": "theirs"}}}`, "labels"}
	defer s.oppose(r, names...)()
	s.waitContested(r, "Service")
	s.ResetCount()
	began := time.Now()
	s.Eventually("the fight has lasted", func(context.Context) error {
		if left := fightTime - time.Since(began); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	requests := s.Requests()
	if writes := requests.Resource("services").Writes(); len(writes) > mostWrites*len(names) {
		t.Errorf("the controller's writes in %s: %s", fightTime, writes)
	}
	if events := requests.Resource("events").Writes(); len(events) > 3 { // One for some that were not undone yet.
		t.Errorf("events: %s", events)
	}
}

// oppose sets back a field of objects, one after the other, at each change, until stop is called.
func (s *scene) oppose(r rival, objects ...string) (stop func()) {
	ctx, cancel := context.WithCancel(s.Ctx())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			// A patch that changes nothing is not stored. To follow a watch would be faster, and prove no more.
			if err := s.patch(ctx, r.resource, objects[i%len(objects)], r.patch, "rival"); err != nil && ctx.Err() == nil {
				s.T.Errorf("the rival's patch: %v", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func (s *scene) patch(ctx context.Context, resource, object, patch, manager string) (err error) {
	options, data := metav1.PatchOptions{FieldManager: manager}, []byte(patch)
	switch resource {
	case "services":
		_, err = s.ServiceClient().Patch(ctx, object, types.MergePatchType, data, options)
	case "pods":
		_, err = s.PodClient().Patch(ctx, object, types.MergePatchType, data, options)
	default:
		_, err = s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).Patch(ctx, object, types.MergePatchType, data, options)
	}
	return err
}

// waitContested waits until the controller reports who opposes it: for a pod in an event.
func (s *scene) waitContested(r rival, object string) {
	s.T.Helper()
	says := fmt.Sprintf(`(field manager "rival") sets %s after the controller has set it`, r.field)
	if r.resource == "pods" {
		s.Eventually("an event says who opposes", func(ctx context.Context) error {
			events, err := s.Events(ctx, "demo", "NodeLabelRefused")
			if err == nil && (len(events) == 0 || !strings.Contains(events[0].Message, says)) {
				err = fmt.Errorf("%v", events)
			}
			return err
		})
		return
	}
	ls := s.WaitLocalService("demo", "is contested", func(ls *v1alpha1.LocalService) error {
		return framework.CheckCondition(ls, v1alpha1.ConditionContested, metav1.ConditionTrue, "")
	})
	c := meta.FindStatusCondition(ls.Status.Conditions, v1alpha1.ConditionContested)
	if !strings.Contains(c.Message, says) || !strings.Contains(c.Message, object) {
		s.Fatalf("the message %q does not say %q of %s", c.Message, says, object)
	}
}

// waitOurs waits until an object is as the controller wants it, and the LocalService is not contested.
func (s *scene) waitOurs(r rival, object string) {
	s.T.Helper()
	s.Eventually("the field is right", func(ctx context.Context) error {
		if r.resource == "endpointslices" {
			slice, err := s.Kube.DiscoveryV1().EndpointSlices(s.Namespace).Get(ctx, object, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return framework.Equal("endpoints", len(slice.Endpoints), 1)
		}
		service, pod := s.GetService("demo-"+s.NodeName("a")), s.GetPod("p")
		for _, value := range []string{service.Labels["team"], service.Annotations["note"], service.Spec.Selector["app"],
			pod.Labels[nodeLabel]} {
			if value == "theirs" {
				return fmt.Errorf("the rival's value is still there")
			}
		}
		return nil
	})
	s.WaitReady("demo")
}
