package writer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	core "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/testobject"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

var (
	services  = corev1.Resource("services")
	forbidden = apierrors.NewForbidden(services, "x", errors.New("exceeded quota"))
	exists    = apierrors.NewAlreadyExists(services, "x")
	conflict  = apierrors.NewConflict(services, "x", errors.New("changed"))
	notFound  = apierrors.NewNotFound(services, "x")
)

// write makes changes for a LocalService against an API server that answers as a function says, which is told the
// request in short. It returns those requests, too.
func write(t *testing.T, change func(*v1alpha1.LocalService), actions map[string]plan.Action,
	answer func(request string, service *corev1.Service) error) (requests []string, out Outcome) {
	t.Helper()
	kube := fake.NewClientset()
	kube.PrependReactor("*", "services", func(a core.Action) (bool, runtime.Object, error) {
		var service *corev1.Service
		request, name := a.GetVerb(), ""
		switch a := a.(type) {
		case core.CreateActionImpl:
			service = testobject.Stored(a.Object.(*corev1.Service))
			if name = service.Name + service.GenerateName; len(a.CreateOptions.DryRun) > 0 {
				request = "try"
			} else if service.Labels["served"] != "" {
				name += " of before"
			}
		case core.DeleteActionImpl:
			name = a.Name
		}
		requests = append(requests, request+" "+name)
		return true, service, answer(requests[len(requests)-1], service)
	})
	s := NewServices(kube, metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), 1, rand.Shuffle,
		func(metav1.Object, int64) {})
	templates, err := plan.NewTemplates(testobject.LocalService(change), v1alpha1.DefaultNodeLabelKey)
	if err != nil {
		t.Fatal(err)
	}
	var changes []plan.Change
	for node, action := range actions {
		c := plan.Change{Action: action, Template: templates[0], Name: "demo-" + node, Node: node}
		if action != plan.Create {
			current := testobject.Stored(templates[0].Service(node))
			current.Labels["served"] = "before"
			c.Current = plan.FromAPI(current, v1alpha1.DefaultNodeLabelKey)
		}
		changes = append(changes, c)
	}
	out = s.Write(t.Context(), templates[0].Namespace(), changes, func(int) error { return nil }, always)
	return requests, out
}

// TestReplacePhases: a Service is deleted only after the API server has said that it would accept its successor, and
// store it as it is.
func TestReplacePhases(t *testing.T) {
	const try, trial, remove, create = "try demo-a", "try demo-a-", "delete demo-a", "create demo-a"
	for name, c := range map[string]struct {
		answers  map[string]error
		admit    func(*corev1.Service) // what admission makes of a Service
		requests []string
		outcome  string // written, refused, stale, contested
	}{
		"accepted": {nil, nil, []string{try, trial, remove, create}, "1 0 0 []"},
		"refused":  {map[string]error{try: forbidden}, nil, []string{try}, "0 1 0 []"},
		"refused under a name that is free": {map[string]error{trial: forbidden}, nil, []string{try, trial},
			"0 1 0 []"},
		"stored as another one": {nil, func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("x") },
			[]string{try, trial}, "0 0 0 [loadBalancerClass]"},
		"changed meanwhile": {map[string]error{remove: conflict}, nil, []string{try, trial, remove}, "0 0 1 []"},
		"gone meanwhile": {map[string]error{remove: notFound}, nil, []string{try, trial, remove, create},
			"1 0 0 []"},
		"refused in spite of the dry run": {map[string]error{create: forbidden}, nil,
			[]string{try, trial, remove, create, "create demo-a of before"}, "0 1 0 []"},
		"made by somebody else meanwhile": {map[string]error{create: exists}, nil,
			[]string{try, trial, remove, create}, "0 0 1 []"},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(ls *v1alpha1.LocalService) {
				ls.Spec.Type, ls.Spec.ClusterIP, ls.Spec.LoadBalancerClass = "LoadBalancer", "", new("a")
			}
			requests, out := write(t, change, map[string]plan.Action{"a": plan.Replace},
				func(request string, service *corev1.Service) error {
					if c.admit != nil && service != nil {
						c.admit(service)
					}
					if err, found := c.answers[request]; found || request != try {
						return err
					}
					return exists
				})
			got := fmt.Sprint(len(out.Written), len(out.Refused), len(out.Stale), out.Contested.UnsortedList())
			if !slices.Equal(requests, c.requests) || got != c.outcome {
				t.Errorf("%s after %v, want %s after %v", got, requests, c.outcome, c.requests)
			}
		})
	}
}

// TestReplaceComesLast: nothing that serves is taken away while other writes are refused, or come back changed.
func TestReplaceComesLast(t *testing.T) {
	for name, answer := range map[string]func(string, *corev1.Service) error{
		"refused": func(request string, _ *corev1.Service) error {
			if request == "create demo-new" {
				return forbidden
			}
			return nil
		},
		"contested": func(request string, service *corev1.Service) error {
			if service != nil {
				service.Spec.PublishNotReadyAddresses = true
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests, _ := write(t, func(*v1alpha1.LocalService) {},
				map[string]plan.Action{"a": plan.Replace, "b": plan.Replace, "new": plan.Create}, answer)
			if want := []string{"create demo-new"}; !slices.Equal(requests, want) {
				t.Errorf("requests %v, want %v", requests, want)
			}
		})
	}
}

// TestMayPass: which failures are worth trying again at once.
func TestMayPass(t *testing.T) {
	for name, c := range map[string]struct {
		refused []error
		want    bool
	}{
		"none":         {nil, true},
		"not answered": {[]error{errors.New("connection refused")}, true},
		"busy":         {[]error{apierrors.NewTooManyRequests("", 1), apierrors.NewServiceUnavailable("")}, true},
		"too slow": {[]error{apierrors.NewTimeoutError("", 1), apierrors.NewServerTimeout(services, "", 1)},
			true},
		"refused":            {[]error{forbidden}, false},
		"refused among them": {[]error{errors.New("x"), fmt.Errorf("stays as it is: %w", forbidden)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&Outcome{Refused: c.refused}).MayPass(); got != c.want {
				t.Errorf("%t, want %t", got, c.want)
			}
		})
	}
}
