package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
)

// pod holds the facts about a pod of a LocalService.
type pod struct {
	Pod

	object *corev1.Pod
	// cause says why the pod is not ready, and note what else is known of that, such as how often it has restarted.
	cause, note string
	addresses   []string
	// runs is true unless the pod has ended, or is about to.
	ended, runs bool
	// isLabelled is true if the pod has the node label of its node, or needs none.
	isLabelled bool
}

// The words for what goes through several states, and for what no state names.
const (
	crashes    = "CrashLoopBackOff"
	pullFails  = "ImagePullBackOff"
	terminates = "Terminating"
	// ProbeFails is the reason of a pod that runs, whose startup or readiness probe does not succeed.
	ProbeFails = "ProbeFails"
)

// addPods adds the pods of a LocalService.
func addPods(f *facts) {
	f.pods, f.strays, f.alive = map[string][]*pod{}, map[string][]*pod{}, sets.Set[string]{}
	tolerations := sets.Set[corev1.Toleration]{}
	slices.SortFunc(f.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for _, object := range f.Pods {
		p := podOf(object, f)
		f.pods[object.Spec.NodeName] = append(f.pods[object.Spec.NodeName], p)
		if !p.isLabelled && p.runs {
			f.strays[p.NodeLabel] = append(f.strays[p.NodeLabel], p)
		}
		if !p.ended {
			f.alive.Insert(p.addresses...)
		}
		for _, t := range object.Spec.Tolerations {
			t.TolerationSeconds = nil // It does not matter for a pod that is to start.
			tolerations.Insert(t)
		}
	}
	f.tolerations = tolerations.UnsortedList()
}

func podOf(object *corev1.Pod, f *facts) *pod {
	phase, nodeName, label := object.Status.Phase, object.Spec.NodeName, object.Labels[f.nodeLabelKey]
	p := &pod{Pod: Pod{Name: object.Name, NodeLabel: label}, object: object,
		ended:      phase == corev1.PodSucceeded || phase == corev1.PodFailed,
		isLabelled: nodeName == "" || !plan.LabelsPods(f.LocalService) || label == naming.NodeLabelValue(nodeName)}
	p.runs = !p.ended && object.DeletionTimestamp == nil
	for _, ip := range object.Status.PodIPs {
		p.addresses = append(p.addresses, ip.IP)
	}
	p.Reason, p.cause, p.note = whyNotReady(object, f)
	if p.Ready = p.Reason == ""; !p.Ready && p.cause == "" {
		p.cause = "not ready"
		if node := f.nodes[nodeName]; node != nil && unreadiness(node) != nil {
			p.cause = "its node " + nodeName + " is NotReady"
			p.note = since(unreadiness(node).LastTransitionTime, f.told)
		}
	}
	p.Reason, p.Message = own(p.Reason), p.cause
	if p.note != "" {
		p.Message += " (" + p.note + ")"
	}
	return p
}

// whyNotReady says why a pod is not ready: in a word that stays the same while the cause does, in words for people, and
// what else is known. Without a cause, its kubelet does not say why. All are "" if it is ready, and does not seem to
// end again soon.
func whyNotReady(p *corev1.Pod, f *facts) (word, cause, note string) {
	conditions := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range p.Status.Conditions {
		conditions[c.Type] = c
	}
	ready, scheduled := conditions[corev1.PodReady], conditions[corev1.PodScheduled]
	switch {
	case p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed:
		word = cmp.Or(p.Status.Reason, string(p.Status.Phase)) // Evicted
		return word, own(word), own(p.Status.Message)
	case p.DeletionTimestamp != nil:
		return terminates, terminates, ""
	}
	inits := len(p.Status.InitContainerStatuses)
	containers := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	in := func(i int) string {
		switch {
		case i < inits:
			return "init container " + containers[i].Name + ": "
		case len(p.Status.ContainerStatuses) > 1:
			return "container " + containers[i].Name + ": "
		}
		return ""
	}
	for i := range containers {
		if word, cause, note = whyNotRunning(p, &containers[i], i < inits, f.Now); word != "" {
			return word, in(i) + elide(cause, p), note
		}
	}
	if ready.Status == corev1.ConditionTrue {
		return "", "", ""
	}
	for i := inits; i < len(containers); i++ {
		c, probe := &containers[i], "its readiness probe does not succeed"
		if !ptr.Deref(c.Started, true) {
			probe = "its startup probe has not succeeded"
		}
		if !c.Ready && c.State.Running != nil {
			return ProbeFails, in(i) + probe, sinceItRuns(c, f.told)
		}
	}
	if p.Spec.NodeName == "" {
		return cmp.Or(scheduled.Reason, "Unscheduled"), "not scheduled: " + cmp.Or(own(scheduled.Message),
			"no scheduler has decided yet"), ""
	}
	return cmp.Or(p.Status.Reason, ready.Reason, "NotReady"), own(cmp.Or(ready.Message, p.Status.Reason)), ""
}

// whyNotRunning says why a container does not run. A container that crashes is at times waiting, at times running and
// at times terminated, and an image that cannot be pulled has two reasons: each is one cause.
func whyNotRunning(p *corev1.Pod, c *corev1.ContainerStatus, isInit bool, now time.Time) (word, cause, note string) {
	crash := c.LastTerminationState.Terminated
	switch waiting, running, ended := c.State.Waiting, c.State.Running, c.State.Terminated; {
	case waiting != nil && (waiting.Reason == pullFails || waiting.Reason == "ErrImagePull"):
		return pullFails, strings.TrimSpace("cannot pull image " + own(c.Image)), ""
	case waiting != nil && waiting.Reason == crashes:
	case waiting != nil && waiting.Reason != "": // ContainerCreating, or what the kubelet or its runtime says
		return waiting.Reason, cmp.Or(own(waiting.Message),
			own(waiting.Reason)+": kubectl describe pod says what it waits for"), ""
	case ended != nil && (ended.ExitCode != 0 || !isInit):
		crash = ended
	case running != nil && (!c.Ready || c.RestartCount > 1) && crash != nil && !isInit &&
		isLoop(crash, now.Sub(running.StartedAt.Time)):
	default:
		return "", "", ""
	}
	switch word, cause = crashes, crashes; {
	case crash == nil:
	case crash.Reason == "OOMKilled":
		word, cause = crash.Reason, crash.Reason
	case crash.Message != "" && crash.StartedAt.Unix() <= 0: // It never ran: no such program, say.
		cause = own(crash.Message)
	case own(crash.Message) != "":
		cause = exited(crash.ExitCode) + ": " + own(crash.Message)
	default:
		cause = exited(crash.ExitCode)
		if hasLivenessProbe(p, c.Name) { // Which may have ended it. The status does not say so.
			cause += ", by itself or as its liveness probe fails: kubectl describe pod says which"
		}
	}
	return word, cause, restarts(c)
}

func hasLivenessProbe(p *corev1.Pod, container string) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == container && c.LivenessProbe != nil
	})
}

func exited(code int32) string { return fmt.Sprint("exit code ", code) }

// isLoop reports whether a container that runs again will most likely end once more: it has hardly run, and not for
// longer than before. After a run of ten minutes, the kubelet forgets the crashes before.
func isLoop(last *corev1.ContainerStateTerminated, runs time.Duration) bool {
	before := last.FinishedAt.Sub(last.StartedAt.Time)
	return before < 10*time.Minute && runs <= min(before, time.Minute)
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

// namesItself reports whether a container of a pod has a name of its LocalService made from a variable, as
// demo-$(NODE) or $(NODE).demo.
func namesItself(p *corev1.Pod, localService string) bool {
	var texts []string
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		texts = slices.Concat(texts, c.Command, c.Args)
		for _, e := range c.Env {
			texts = append(texts, e.Value)
		}
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(text, localService+"-$") || strings.Contains(text, ")."+localService) ||
			strings.Contains(text, "}."+localService)
	})
}

func containerPorts(p *corev1.Pod) (ports []corev1.ContainerPort) {
	for i := range p.Spec.Containers {
		ports = append(ports, p.Spec.Containers[i].Ports...)
	}
	return ports
}
