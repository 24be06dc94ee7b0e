package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
)

// Around holds what there is instead of the pods of a LocalService that has none.
type Around struct {
	// Workloads are in its namespace.
	Workloads []Workload
	// Namespaces are other ones with such pods.
	Namespaces []string
}

// Workload is a Deployment, StatefulSet or DaemonSet that makes pods, and how many it should; or a pod, without a name.
type Workload struct {
	Kind, Name string
	Labels     labels.Set
	Replicas   int32
}

// messageOf returns what concerns a LocalService as a whole, a line for each cause.
func messageOf(f *facts) string {
	if isUnobserved(f.LocalService) && !f.Controller.Stopped {
		return "" // Soon there is more to say.
	}
	// Nobody is sent to a port that no container declares.
	ports := cmp.Or(undeclaredPorts(f), sentence(plan.TranslatedPorts(f.LocalService, f.portNumbers)))
	return words.Join("\n", whyNoPods(f), ports)
}

// whyNoPods says why no pod has the labels of the selector, as far as what is around shows.
func whyNoPods(f *facts) string {
	ls := f.LocalService
	if len(f.Pods) > 0 || f.AllNodes && len(f.names) == 0 {
		return ""
	}
	message := fmt.Sprintf("No pod in namespace %s has the labels %s.", ls.Namespace,
		labels.FormatLabels(ls.Spec.Selector))
	if hint := plan.SelectorHint(ls); hint != "" {
		return message + " " + sentence(hint)
	}
	for _, w := range f.Around.Workloads {
		switch {
		case w.Name == "" || !plan.SelectsPod(ls, w.Labels):
		case w.Replicas == 0:
			return fmt.Sprintf("%s %s %s makes such pods, and has 0 replicas: %s scale -n %s %s/%s --replicas=1",
				message, w.Kind, w.Name, f.Kubectl, ls.Namespace, strings.ToLower(w.Kind), w.Name)
		default:
			return fmt.Sprintf("%s %s %s should make them: %s describe %s -n %s %s", message, w.Kind, w.Name,
				f.Kubectl, strings.ToLower(w.Kind), ls.Namespace, w.Name)
		}
	}
	if len(f.Around.Namespaces) > 0 {
		return fmt.Sprintf("%s Such pods are in other namespaces (%s). If they are meant, create the LocalService "+
			"there: it selects pods of its own namespace only", message, first(f.Around.Namespaces))
	}
	if len(f.Around.Workloads) > 0 {
		return fmt.Sprintf("%s The pods there have %s: correct spec.selector, or their labels", message,
			strings.Join(nearestLabels(ls.Spec.Selector, f.Around.Workloads, f.nodeLabelKey), " or "))
	}
	return message
}

// nearestLabels returns the labels of the pods that are the most like a selector, or of what makes them: those with the
// longest beginnings of its values first. It omits the node label, which no selector may have.
func nearestLabels(selector map[string]string, workloads []Workload, nodeLabelKey string) (nearest []string) {
	likeness := func(w Workload) (bytes int) {
		for key, value := range selector {
			have := w.Labels[key]
			for i := 0; i < min(len(value), len(have)) && value[i] == have[i]; i++ {
				bytes++
			}
		}
		return bytes
	}
	for _, w := range slices.SortedStableFunc(slices.Values(workloads), func(a, b Workload) int {
		return cmp.Compare(likeness(b), likeness(a))
	}) {
		set := maps.Clone(w.Labels)
		delete(set, nodeLabelKey)
		if text := own(labels.FormatLabels(set)); !slices.Contains(nearest, text) {
			nearest = append(nearest, text)
		}
	}
	return nearest[:min(len(nearest), most)]
}

// sentence makes one of a text that is not empty.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// undeclaredPorts says which ports no container declares, although containers declare others. A program may listen
// there all the same.
func undeclaredPorts(f *facts) string {
	declared := sets.Set[string]{}
	for _, p := range f.Pods {
		for _, port := range containerPorts(p) {
			declared.Insert(numbered(port.ContainerPort, port.Protocol))
		}
	}
	var unknown []string
	for _, port := range f.LocalService.Spec.Ports {
		number := numbered(cmp.Or(port.TargetPort.IntVal, port.Port), port.Protocol)
		if port.TargetPort.StrVal == "" && !declared.Has(number) {
			unknown = append(unknown, number)
		}
	}
	if len(declared) == 0 || len(unknown) == 0 {
		return ""
	}
	return fmt.Sprintf("No container declares port %s (declared: %s). If nothing listens there, correct port, "+
		"targetPort or protocol.", first(unknown), first(sets.List(declared)))
}

// Controller holds what the Lease of the controller shows, the zero value if it could not be read, or if there is none.
type Controller struct {
	// Namespace and Name are those of the Lease, and Holder is the pod that holds it, "" for none.
	Namespace, Name, Holder string
	// Renewed is when the Lease was last renewed.
	Renewed time.Time
	// Stopped is true if it is not renewed any more.
	Stopped bool
	// Namespaces are those that controllers watch, with metav1.NamespaceAll for all. Unguarded has the resources that
	// the guard does not protect.
	Namespaces []string
	Unguarded  string
}

// UsualNamespace is where the controller is installed according to its documents.
const UsualNamespace = "local-service-system"

// Stops says that the controller does not seem to run, and how to look; "" if it runs, or if that is not known. A zero
// now is for a text that stays the same.
func (c *Controller) Stops(kubectl string, now time.Time) string {
	if !c.Stopped {
		return ""
	}
	return fmt.Sprintf("The controller does not seem to run: Lease %s/%s has not been renewed %s. See whether its pods "+
		"run, and in their log what they wait for: %s get deployments,pods -n %s", c.Namespace, c.Name,
		since(metav1.NewTime(c.Renewed), now), kubectl, c.Namespace)
}

// whyNotActed says that no controller has acted on a LocalService, and how to look; "" if one has, or if no name is
// late and the spec is observed.
func whyNotActed(f *facts, isAnyLate bool) string {
	c, namespace := &f.Controller, f.LocalService.Namespace
	switch stops := c.Stops(f.Kubectl, f.agesAt); {
	case stops != "":
		return stops
	case len(c.Namespaces) > 0 && !sets.New(c.Namespaces...).HasAny(metav1.NamespaceAll, namespace):
		return fmt.Sprintf("No controller watches namespace %s, so nothing here is kept up to date: that of Lease %s/%s "+
			"watches %s. Ask the cluster's administrator to add the namespace to its -namespaces (Helm: namespaces)",
			namespace, c.Namespace, c.Name, first(c.Namespaces))
	case !isAnyLate && !isUnobserved(f.LocalService),
		f.Now.Sub(f.LocalService.CreationTimestamp.Time) < patience:
		return ""
	case c.Name == "":
		return fmt.Sprintf("No controller has reported the latest change in namespace %s. Does one run, and does it "+
			"watch this namespace (-namespaces)? Ask the cluster's administrator, or see %s get deployments,pods -n %s",
			namespace, f.Kubectl, UsualNamespace)
	}
	return fmt.Sprintf("The controller runs, but has not finished with the latest change in namespace %s. Does it "+
		"watch this namespace (-namespaces), and has it all permissions? Its log says: %s logs -n %s %s", namespace,
		f.Kubectl, c.Namespace, cmp.Or(c.Holder, "POD"))
}

// patience is how long the controller may take.
const patience = 10 * time.Second
