package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// The words for what goes through several states, and for what no state names.
const (
	crashes    = "CrashLoopBackOff"
	pullFails  = "ImagePullBackOff"
	probeFails = "ProbeFails" // the startup or readiness probe of a pod that runs

	itsLog    = "logs"
	itsEvents = "describe pod"
)

func addPods(f *facts) {
	f.pods, f.mislabelled = map[string][]*pod{}, map[string][]*pod{}
	tolerations := sets.Set[corev1.Toleration]{}
	slices.SortFunc(f.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, object := range f.Pods {
		p, node := podOf(object, f), cmp.Or(object.Spec.NodeName, nodeOfDaemon(object))
		f.pods[node] = append(f.pods[node], p)
		if !p.isLabelled && p.runs {
			f.mislabelled[p.NodeLabel] = append(f.mislabelled[p.NodeLabel], p)
		}
		for _, t := range object.Spec.Tolerations {
			t.TolerationSeconds = nil // It does not matter for a pod that is to start.
			tolerations.Insert(t)
		}
	}
	f.tolerations = tolerations.UnsortedList()
}

// addPodsOfName tells apart the pods of a name.
func addPodsOfName(n *name) {
	slices.SortFunc(n.pods, func(a, b *pod) int { return cmp.Compare(a.Name, b.Name) }) // of all nodes of a group
	here := only(n.pods, func(p *pod) bool { return p.runs && !p.isLabelled })
	n.mislabelled = append(here, n.facts.mislabelled[naming.NodeLabelValue(n.result.Node)]...)
	n.unready = only(n.pods, func(p *pod) bool { return p.runs && !p.Ready })
	n.terminating = only(n.pods, func(p *pod) bool { return !p.runs && !p.ended })
}

// nodeOfDaemon returns the only node that a pod may get, as the pods of a DaemonSet say; "" for another pod.
func nodeOfDaemon(p *corev1.Pod) string {
	affinity := ptr.Deref(ptr.Deref(p.Spec.Affinity, corev1.Affinity{}).NodeAffinity, corev1.NodeAffinity{})
	required := ptr.Deref(affinity.RequiredDuringSchedulingIgnoredDuringExecution, corev1.NodeSelector{})
	if len(required.NodeSelectorTerms) == 1 {
		for _, f := range required.NodeSelectorTerms[0].MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

func podOf(object *corev1.Pod, f *facts) *pod {
	phase, nodeName, label := object.Status.Phase, object.Spec.NodeName, object.Labels[f.nodeLabelKey]
	p := &pod{Pod: Pod{Name: object.Name, NodeLabel: label, Created: object.CreationTimestamp}, object: object,
		requires:   nodeaffinity.GetRequiredNodeAffinity(object),
		ended:      phase == corev1.PodSucceeded || phase == corev1.PodFailed,
		isLabelled: nodeName == "" || !plan.LabelsPods(f.LocalService) || label == naming.NodeLabelValue(nodeName)}
	p.runs = !p.ended && object.DeletionTimestamp == nil
	containers := slices.Concat(object.Status.InitContainerStatuses, object.Status.ContainerStatuses)
	p.trouble = whyNotReady(object, containers, f)
	p.Ready, p.Reason, p.Container, p.Log = p.word == "", quoteForeign(p.word), p.container, p.log
	for _, c := range containers {
		p.Restarts += c.RestartCount
	}
	if !p.Ready && p.cause == "" {
		p.cause, p.more = "not ready", itsEvents
		if node := f.nodes[nodeName]; node != nil && unreadiness(node) != nil {
			p.cause, p.note = "its node "+nodeName+" is NotReady", since(unreadiness(node).LastTransitionTime, f.agesAt)
			p.act = fmt.Sprintf("see %s describe node %s", f.Kubectl, nodeName)
		}
	}
	p.Message = withNote(p.cause, p.note)
	return p
}

// whyNotReady says why a pod is not ready, or seems to end again soon. Without a cause, its kubelet does not say why.
func whyNotReady(p *corev1.Pod, containers []corev1.ContainerStatus, f *facts) trouble {
	conditions := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range p.Status.Conditions {
		conditions[c.Type] = c
	}
	ready, scheduled := conditions[corev1.PodReady], conditions[corev1.PodScheduled]
	switch {
	case p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed:
		word := cmp.Or(p.Status.Reason, string(p.Status.Phase)) // Evicted
		return trouble{word: word, cause: quoteForeign(word), note: quoteForeign(p.Status.Message), log: LogCurrent}
	case p.DeletionTimestamp != nil:
		return trouble{word: "Terminating", cause: "Terminating"}
	}
	isReady := ready.Status == corev1.ConditionTrue
	switch t := whyContainerNotReady(p, containers, isReady, f); {
	case t.word != "" || isReady:
		return t
	case p.Spec.NodeName == "":
		return whyWaiting(p, scheduled, f)
	}
	for _, gate := range p.Spec.ReadinessGates {
		if set := conditions[gate.ConditionType]; set.Status == "" && ready.Reason != "ContainersNotReady" {
			return trouble{word: cmp.Or(ready.Reason, "NotReady"), cause: "nothing sets its readiness gate " +
				quoteForeign(string(gate.ConditionType)) + ": does the controller run that should?", more: itsEvents}
		}
	}
	return trouble{word: cmp.Or(p.Status.Reason, ready.Reason, "NotReady"),
		cause: quoteForeign(cmp.Or(ready.Message, p.Status.Reason))}
}

// whyWaiting says why a pod has no node: what is around it, and the scheduler.
func whyWaiting(p *corev1.Pod, scheduled corev1.PodCondition, f *facts) trouble {
	t, why := trouble{word: cmp.Or(scheduled.Reason, "Unscheduled"), more: itsEvents}, ""
	for _, e := range f.Around.Events {
		switch about := e.InvolvedObject; {
		case about.Kind == "PersistentVolumeClaim" && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == about.Name
		}):
			why = "its PersistentVolumeClaim is not bound, " + quoteForeign(e.Message)
			t.act = fmt.Sprintf("see %s describe pvc -n %s %s", f.Kubectl, p.Namespace, about.Name)
		case e.Reason == eventPreempted && p.GenerateName != "" && strings.HasPrefix(about.Name, p.GenerateName):
			why = "a pod of a higher priority has its place"
			t.act = quoteForeign(e.Message) + ": make room, or raise its priority"
		}
	}
	for i := range f.Around.Pods {
		other, node := &f.Around.Pods[i], nodeOfDaemon(p)
		t.act = strings.ReplaceAll(t.act, cmp.Or(string(other.UID), other.Name), other.Name) // Events have the UID.
		if taken := sets.List(hostPorts(p).Intersection(hostPorts(other))); other.Spec.NodeName != "" &&
			len(taken) > 0 && (node == "" || node == other.Spec.NodeName) {
			why, t.act = "another pod has its host port "+taken[0], "remove pod "+other.Name+", or change the hostPort of one"
		}
	}
	t.cause = "not scheduled: " + words.Join("; ", why, quoteForeign(cmp.Or(scheduled.Message,
		"no scheduler has decided yet")))
	return t
}

func hostPorts(p *corev1.Pod) sets.Set[string] {
	ports := sets.New[string]()
	for _, port := range containerPorts(p) {
		if port.HostPort != 0 {
			ports.Insert(numbered(port.HostPort, port.Protocol))
		}
	}
	return ports
}

// whyContainerNotReady says which container of a pod is not ready, or seems to end again soon, and why.
func whyContainerNotReady(p *corev1.Pod, containers []corev1.ContainerStatus, isReady bool, f *facts) trouble {
	inits := len(p.Status.InitContainerStatuses)
	in := func(i int, t trouble) trouble {
		if len(containers) > 1 { // A status may have any name, and commands to copy have this one.
			t.container = specOf(p, containers[i].Name).Name
		}
		switch {
		case i < inits:
			t.cause = "init container " + quoteForeign(containers[i].Name) + ": " + t.cause
		case len(p.Status.ContainerStatuses) > 1:
			t.cause = "container " + quoteForeign(containers[i].Name) + ": " + t.cause
		}
		return t
	}
	for i := range containers {
		switch t := whyNotRunning(p, &containers[i], i < inits, f); {
		case t.word != "":
			t.cause = elide(t.cause, p)
			return in(i, t)
		case i < inits && containers[i].State.Running != nil && !containers[i].Ready:
			t = whyUnready(&containers[i], f)
			if ptr.Deref(specOf(p, containers[i].Name).RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
				t = trouble{word: "PodInitializing", cause: "the other containers wait for it", note: t.note, more: itsLog,
					log: LogCurrent}
			}
			return in(i, t)
		}
	}
	for i := range containers {
		if !isReady && !containers[i].Ready && containers[i].State.Running != nil {
			return in(i, whyUnready(&containers[i], f))
		}
	}
	return trouble{}
}

// whyUnready says why a container that runs is not ready.
func whyUnready(c *corev1.ContainerStatus, f *facts) trouble {
	probe := "its readiness probe does not succeed"
	if !ptr.Deref(c.Started, true) {
		probe = "its startup probe has not succeeded"
	}
	return trouble{word: probeFails, cause: probe, note: sinceItRuns(c, f.agesAt), more: itsEvents, log: LogCurrent}
}

// whyNotRunning says why a container does not run. A container that crashes is at times waiting, at times running and
// at times terminated, and an image that cannot be pulled has two reasons: each is one cause.
func whyNotRunning(p *corev1.Pod, c *corev1.ContainerStatus, isInit bool, f *facts) trouble {
	crash := c.LastTerminationState.Terminated
	switch waiting, running, ended := c.State.Waiting, c.State.Running, c.State.Terminated; {
	case waiting != nil && (waiting.Reason == pullFails || waiting.Reason == "ErrImagePull"):
		return trouble{word: pullFails, cause: quoteForeign("cannot pull image " + c.Image), more: itsEvents}
	case waiting != nil && waiting.Reason == crashes:
	case waiting != nil && quoteForeign(waiting.Message) != "": // what the kubelet or its runtime says
		return trouble{word: cmp.Or(waiting.Reason, "Waiting"), cause: quoteForeign(waiting.Message), more: itsEvents}
	case waiting != nil && waiting.Reason != "":
		t := trouble{word: waiting.Reason, cause: quoteForeign(waiting.Reason), more: itsEvents,
			note: since(ptr.Deref(p.Status.StartTime, metav1.Time{}), f.agesAt)}
		if waiting.Reason == "ContainerCreating" {
			t.cause += ": it waits for its volumes, its image or the network"
		}
		return t
	case ended != nil && (ended.ExitCode != 0 || !isInit):
		crash = ended
	case running != nil && crash != nil && isLoop(crash, f.Now.Sub(running.StartedAt.Time), c.RestartCount):
	default:
		return trouble{}
	}
	t := trouble{word: crashes, cause: crashes, note: restarts(c), more: itsLog, log: LogCurrent}
	if c.State.Running != nil {
		t.log = LogPrevious // Until it runs again, the log of the last run is the current one.
	}
	switch spec := specOf(p, c.Name); {
	case crash == nil:
	case crash.Reason == "OOMKilled":
		t.word, t.cause, t.more = crash.Reason, crash.Reason, ""
	case crash.Message != "" && crash.StartedAt.Unix() <= 0: // There is no such program, for example.
		t.cause, t.more, t.log = quoteForeign(crash.Message), "", ""
	case quoteForeign(crash.Message) != "":
		t.cause = exited(crash.ExitCode) + ": " + quoteForeign(crash.Message)
	case spec.LivenessProbe != nil, spec.StartupProbe != nil: // The status does not say what ended it.
		t.cause, t.more = exited(crash.ExitCode)+", by itself or as its liveness or startup probe fails", itsEvents
	default:
		t.cause = exited(crash.ExitCode)
	}
	return t
}

func specOf(p *corev1.Pod, name string) (spec corev1.Container) {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name == name {
			spec = c
		}
	}
	return spec
}

func exited(code int32) string { return fmt.Sprint("exit code ", code) }

// isLoop reports whether a container that runs again most likely ends once more: it has not run much longer than
// before, nor a minute for each end. The kubelet forgets them after a run of ten minutes, and may after a reboot.
func isLoop(last *corev1.ContainerStateTerminated, runs time.Duration, restarts int32) bool {
	before := last.FinishedAt.Sub(last.StartedAt.Time)
	return !last.FinishedAt.IsZero() && before < 10*time.Minute &&
		runs <= min(before+10*time.Second, time.Duration(restarts)*time.Minute)
}

func restarts(c *corev1.ContainerStatus) string {
	if c.RestartCount == 0 {
		return ""
	}
	return words.Count(int(c.RestartCount), "restart")
}

// sinceItRuns says how long a container has run, and how it ended before.
func sinceItRuns(c *corev1.ContainerStatus, now time.Time) string {
	runs, before := since(c.State.Running.StartedAt, now), ""
	if runs != "" {
		runs = "has run " + runs
	}
	if last := c.LastTerminationState.Terminated; last != nil {
		before = "before: " + exited(last.ExitCode)
	}
	return words.Join(", ", runs, before, restarts(c))
}

// elide replaces what is different in each message about the same cause: the name and the UID of the pod.
func elide(text string, p *corev1.Pod) string {
	name := p.Name + "_" + p.Namespace
	return strings.NewReplacer(name, "…", cmp.Or(string(p.UID), name), "…").Replace(text)
}

func containerPorts(p *corev1.Pod) (ports []corev1.ContainerPort) {
	for i := range p.Spec.Containers {
		ports = append(ports, p.Spec.Containers[i].Ports...)
	}
	return ports
}
