package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// noticesOf returns what concerns a LocalService as a whole.
func noticesOf(f *facts) []Notice {
	if f.isUnobserved && !f.Controller.Stopped {
		return nil // Soon there is more to say.
	}
	translated := words.TranslatedPorts(f.LocalService, f.portNumbers)
	ports := Notice{Cause: "No container declares a port of spec.ports", Message: undeclaredPorts(f)}
	if ports.Message == "" { // Nobody is sent to a port that no container declares.
		ports = Notice{Cause: "Clients must connect to the ports of the pods: a headless Service does not translate ports",
			Message: sentence(translated)}
	}
	noPods := Notice{Reason: NoPods, Cause: "No pod has the labels of spec.selector", Message: whyNoPods(f)}
	others := Notice{Cause: "A name leads to pods of several workloads", Message: otherPods(f)}
	orphans := Notice{Cause: "Services of a deleted LocalService are left", Message: f.Orphans, Common: true}
	guard := Notice{Cause: "The guard is not in force for the controller's account", Common: true}
	if resources := quoteForeign(f.Controller.Unguarded); resources != "" {
		guard.Message = guard.Cause + " (" + resources + "): apply guard.yaml of the release with the name of this " +
			"account, or set -guard=false. The controller looks again every minute."
	}
	notices := []Notice{noPods, others, ports, orphans, guard}
	for _, more := range strings.Split(f.ready.Message, "; ")[1:] { // what is worth knowing although it is Ready
		if f.ready.Status == metav1.ConditionTrue && more != translated && more != words.SelectorHint(f.LocalService) {
			notices = append(notices, Notice{Cause: quoteForeign(more), Message: sentence(words.Printable(more))})
		}
	}
	return only(notices, func(n Notice) bool { return n.Message != "" })
}

// Orphans says that Services of a LocalService that is missing are left: of the first by its key, "" for none.
func Orphans(services []*corev1.Service, isMissing func(key string) bool, kubectl string) string {
	left := sets.Set[string]{}
	for _, s := range services {
		owner := s.Labels[v1alpha1.OwnerLabelKey]
		isGenerated := owner != "" && plan.NodeOf(s)+s.Labels[v1alpha1.HostnamesLabelKey] != ""
		if isGenerated && metav1.GetControllerOfNoCopy(s) == nil && isMissing(s.Namespace+"/"+owner) {
			left.Insert(s.Namespace + "/" + owner)
		}
	}
	if len(left) == 0 {
		return ""
	}
	namespace, owner, _ := strings.Cut(sets.List(left)[0], "/")
	return fmt.Sprintf("Services of a deleted LocalService %s/%s are left (--cascade=orphan), and will not lead to "+
		"new pods. Create it again, or delete them: %s delete services -n %[1]s -l owner=%[2]s", namespace, owner, kubectl)
}

// otherPods says that a name leads to pods of several workloads, of which perhaps only one is meant.
func otherPods(f *facts) string {
	for _, n := range f.names {
		workloads := sets.Set[string]{}
		for _, p := range n.pods {
			if kind, name := workloadOf(p.object); p.runs && kind != "" { // Bare pods are there to look into something.
				workloads.Insert(kind + " " + name)
			}
		}
		if len(workloads) > 1 {
			return fmt.Sprintf("The name of %s leads to pods of %s. If only one of them is meant, add a label to "+
				"spec.selector that only its pods have.", quoteForeign(n.result.Node),
				strings.Join(sets.List(workloads)[:2], " and "))
		}
	}
	return ""
}

// workloadOf returns the kind and the name of what makes a pod. A ReplicaSet is a revision of a Deployment, and a Job
// may be a run of a CronJob: there, the name is what comes before the last dash.
func workloadOf(p *corev1.Pod) (kind, name string) {
	owner := plan.ControllerOf(p)
	kind, name = quoteForeign(owner.Kind), quoteForeign(owner.Name)
	if i := strings.LastIndexByte(name, '-'); i > 0 && (kind == "ReplicaSet" || kind == "Job") {
		name = name[:i]
	}
	return strings.Replace(kind, "ReplicaSet", "Deployment", 1), name
}

// tooFew says that a workload has fewer pods than there are names; "" if none has. A DaemonSet follows the nodes.
func tooFew(f *facts) string {
	for _, w := range f.makers {
		if w.Kind != "DaemonSet" && len(f.Pods) > 0 && int(w.Replicas) < len(f.names) {
			return fmt.Sprintf("%s %s has %s for %s: scale it, by minReplicas if a HorizontalPodAutoscaler does, or use "+
				"a DaemonSet", w.Kind, w.Name, words.Count(int(w.Replicas), "replica"), words.Count(len(f.names), "name"))
		}
	}
	return ""
}

// whyNoPods says why no pod has the labels of the selector, as far as what is around shows.
func whyNoPods(f *facts) string {
	ls := f.LocalService
	if len(f.Pods) > 0 || f.AllNodes && !slices.ContainsFunc(f.names, func(n *name) bool {
		return len(f.makers) == 0 || n.result.Reason != NodeUnschedulable // Then each name says why.
	}) {
		return ""
	}
	message := fmt.Sprintf("No pod in namespace %s has the labels %s.", ls.Namespace,
		labels.FormatLabels(ls.Spec.Selector))
	if hint := words.SelectorHint(ls); hint != "" {
		return message + " " + sentence(hint)
	}
	for _, w := range f.makers {
		switch {
		case w.Replicas == 0 && w.Kind != "DaemonSet":
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
	if nearest := nearestLabels(f); len(nearest) > 0 {
		return fmt.Sprintf("%s The pods there have %s: correct spec.selector, or their labels", message,
			strings.Join(nearest, " or "))
	}
	return message
}

// nearestLabels returns the labels of the pods that are the most like the selector, or of what makes them: those with
// the longest beginnings of its values first. It omits the node label, which no selector may have.
func nearestLabels(f *facts) []string {
	likeness := map[string]int{} // in bytes, by the labels
	add := func(set labels.Set) {
		set, bytes := maps.Clone(set), 0
		delete(set, f.nodeLabelKey)
		for key, value := range f.LocalService.Spec.Selector {
			for i := 0; i < min(len(value), len(set[key])) && value[i] == set[key][i]; i++ {
				bytes++
			}
		}
		likeness[quoteForeign(labels.FormatLabels(set))] = bytes
	}
	for _, w := range f.Around.Workloads {
		add(w.Labels)
	}
	for i := range f.Around.Pods {
		if set := labels.Set(f.Around.Pods[i].Labels); !set.Has(appsv1.DefaultDeploymentUniqueLabelKey) &&
			!set.Has(appsv1.ControllerRevisionHashLabelKey) { // The others are those of a workload.
			add(set)
		}
	}
	nearest := slices.SortedFunc(maps.Keys(likeness), func(a, b string) int {
		return cmp.Or(cmp.Compare(likeness[b], likeness[a]), cmp.Compare(a, b))
	})
	return nearest[:min(len(nearest), maxListed)]
}

// sentence makes one of a text that is not empty.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// undeclaredPorts says which ports no container declares, where others are. Something may listen there all the same.
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

// Stops says that the controller does not seem to run, and how to look. A zero now is for a text that stays the same.
func (c *Controller) Stops(kubectl string, now time.Time) string {
	if !c.Stopped {
		return ""
	}
	return fmt.Sprintf("The controller does not seem to run: Lease %s/%s has not been renewed %s. See whether its pods "+
		"run, and in their log what they wait for: %s get deployments,pods -n %s", c.Namespace, c.Name,
		since(metav1.NewTime(c.Renewed), now), kubectl, c.Namespace)
}

// whyNotActed says that no controller has acted on what is late, or acts at all, and how to look.
func whyNotActed(f *facts) string {
	isAnyLate := slices.ContainsFunc(f.names, func(n *name) bool { return n.result.Waits && f.refusal == "" })
	if f.idle != "" || !isAnyLate && !f.isUnobserved || f.Now.Sub(f.LocalService.CreationTimestamp.Time) < patience {
		return f.idle
	}
	return fmt.Sprintf("No controller has finished with the latest change in namespace %s. Does one run, does it watch "+
		"this namespace (-namespaces), and has it all permissions? Its log says: %s", f.LocalService.Namespace,
		f.controllerLog())
}

// whyIdle says that no controller acts on a LocalService, and what to do; "" if one does, or if that is not known.
func whyIdle(f *facts) string {
	c, watched := &f.Controller, sets.New(f.Controller.Namespaces...)
	if len(watched) == 0 || c.Stopped || watched.HasAny(metav1.NamespaceAll, f.LocalService.Namespace) {
		return c.Stops(f.Kubectl, f.agesAt)
	}
	return fmt.Sprintf("The controller of Lease %s/%s watches only namespaces %s, so LocalServices elsewhere are not "+
		"kept up to date. Ask the cluster's administrator to add their namespace to its -namespaces (Helm: namespaces)",
		c.Namespace, c.Name, first(c.Namespaces))
}

// controllerLog names the command that prints the controller's log.
func (f *facts) controllerLog() string {
	return fmt.Sprintf("%s logs -n %s %s", f.Kubectl, cmp.Or(f.Controller.Namespace, UsualNamespace),
		cmp.Or(f.Controller.Holder, "POD"))
}
