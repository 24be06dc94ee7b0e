package status

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/localservice-dev/local-service-controller/internal/plan"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const (
	// namesInMessage limits the names that a condition's message lists, and namesInEvent those that an event lists
	// for each action. The rest is counted.
	namesInMessage, namesInEvent = 5, 3
	// causesInMessage limits the causes in a condition's message, and causeLength the bytes of each.
	causesInMessage = 3
	causeLength     = 512
	// controllerLength limits the bytes of each controller in a condition's message, because anybody can choose its
	// name.
	controllerLength = 128
)

// elided replaces the name in a message that stands for many objects.
const elided = "…"

// without returns a message with elided in place of the name of an object. A name may also be a word of the message,
// such as quota, so it counts only in quotes, or in a path. without runs for each of thousands of errors, for which
// regular expressions took half a second.
func without(name, message string) string {
	var out strings.Builder
	for name != "" {
		i := strings.IndexAny(message, `"'/`) + 1
		if i == 0 {
			break
		}
		out.WriteString(message[:i])
		message = message[i:]
		rest, isName := strings.CutPrefix(message, name)
		if isName && (rest == "" || strings.IndexByte(`"'/ ,:;?`, rest[0]) >= 0) {
			out.WriteString(elided)
			message = rest
		}
	}
	return out.String() + message
}

// cause returns what errors of the same kind of write have in common: their text without the names of the Services
// and of their nodes.
func cause(err error) string {
	if e, isWrite := errors.AsType[*WriteError](err); isWrite {
		return e.What() + ": " + CauseOf(e.Err, e.Name, e.Node)
	}
	return CauseOf(err)
}

// CauseOf returns what errors of the same kind of write have in common: their text without the given names of
// objects. It cuts and escapes the text, because a webhook may answer anything.
func CauseOf(err error, names ...string) string {
	text := words.Printable(err.Error())
	for _, name := range names {
		text = without(name, text)
	}
	return words.Cut(text, causeLength)
}

// Summarize groups failed writes by cause and counts them, sorted by cause. If there is only one, it names the
// Service.
func Summarize(errs []error) string {
	if len(errs) == 1 {
		return "1 write failed: " + CauseOf(errs[0])
	}
	counts := map[string]int{}
	for _, err := range errs {
		counts[cause(err)]++
	}
	causes := slices.Sorted(maps.Keys(counts))
	var parts []string
	for _, c := range causes[:min(len(causes), causesInMessage)] {
		parts = append(parts, fmt.Sprintf("%d × %s", counts[c], c))
	}
	if more := len(causes) - causesInMessage; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more causes", more))
	}
	if len(causes) == 1 {
		parts = causes
	}
	return fmt.Sprintf("%d writes failed: %s", len(errs), strings.Join(parts, "; "))
}

// summarizeFailed explains which writes failed; "" for none.
func summarizeFailed(errs []error) string {
	if len(errs) == 0 {
		return ""
	}
	return Summarize(errs) + "; each is tried again within two minutes"
}

// summarizeBlocked explains which Services differ in a field that Kubernetes does not let change, and what to do; "" for
// none. Nothing is deleted for that, because it would interrupt the clients.
func summarizeBlocked(blocked []plan.Change) string {
	if len(blocked) == 0 {
		return ""
	}
	return fmt.Sprintf("not updated, because Kubernetes does not let these fields change: %s. Either keep them, and give "+
		"this LocalService the same values (kubectl replace --force recreates a LocalService with its Services), or delete "+
		"each Service, which interrupts its clients until it is created again",
		firstOf(blocked, func(c *plan.Change) string { return c.Immutable + " of Service " + c.Name }))
}

// summarizeConflicts explains which names are taken, and what to do.
func summarizeConflicts(ls *v1alpha1.LocalService, conflicts []plan.Change) string {
	var taken, rivals []plan.Change
	for _, conflict := range conflicts {
		if conflict.Rival != "" {
			rivals = append(rivals, conflict)
		} else {
			taken = append(taken, conflict)
		}
	}
	var parts []string
	if len(taken) > 0 {
		parts = append(parts, summarizeTaken(ls, taken))
	}
	if len(rivals) > 0 {
		parts = append(parts, summarizeRivals(ls, rivals))
	}
	return strings.Join(parts, ". ")
}

// summarizeRivals names the first few of the nodes, or values of groupBy, whose name another one has, and counts all.
func summarizeRivals(ls *v1alpha1.LocalService, rivals []plan.Change) string {
	verb, noun, advice := "have", "node", "Select only one of the nodes that want one name"
	if len(rivals) == 1 {
		verb = "has"
	}
	if ls.Spec.GroupBy != "" {
		noun, advice = "value", "Set the label "+ls.Spec.GroupBy+" to one value on the nodes that want one name"
	}
	return fmt.Sprintf("%s %s no name: %s. %s",
		words.Count(len(rivals), noun), verb, firstOf(rivals, func(rival *plan.Change) string {
			return fmt.Sprintf("%s (%s is the name of %s %s)", rival.Node, rival.Name, noun, rival.Rival)
		}), advice)
}

// firstOf describes the first few of some changes, and counts the rest.
func firstOf(changes []plan.Change, describe func(*plan.Change) string) string {
	list := make([]string, len(changes))
	for i := range changes {
		list[i] = describe(&changes[i])
	}
	return words.List(list, namesInMessage)
}

// summarizeTaken names the first few of the Services whose name is taken and who controls them, counts all, and
// explains what to do. Deleting a Service with an owner does not help, because the owner, which may be another
// LocalService, recreates it.
func summarizeTaken(ls *v1alpha1.LocalService, conflicts []plan.Change) string {
	isOwned := func(conflict plan.Change) bool { return plan.ControllerOf(conflict.Current) != plan.Controller{} }
	advise := func(them, toAdopt string) string {
		if slices.ContainsFunc(conflicts, isOwned) {
			return ". Create this LocalService under another name: deleting a Service does not help, as its owner " +
				"would create it again"
		}
		adopt := ""
		if conflicts[0].Node != "" {
			adopt = toAdopt + words.AdoptionCommand("kubectl", ls, conflicts[0].Node, conflicts[0].Template.NodeLabelKey())
		}
		return fmt.Sprintf("%[2]s. If nothing uses %[1]s, delete %[1]s; if the app needs %[1]s, create this "+
			"LocalService under another name: a Service cannot be renamed", them, adopt)
	}
	names := firstOf(conflicts, func(conflict *plan.Change) string {
		owner := "no owner"
		if isOwned(*conflict) {
			controller := plan.ControllerOf(conflict.Current)
			owner = "owner: " + words.Cut(words.Controller(controller), controllerLength)
		}
		return fmt.Sprintf("%q (%s)", conflict.Name, owner)
	})
	if len(conflicts) == 1 {
		return fmt.Sprintf("Service %s already exists", names) +
			advise("it", ". If it is for the pods on node "+conflicts[0].Node+", have it adopted: ")
	}
	return fmt.Sprintf("%d Services already exist: %s", len(conflicts), names) +
		advise("them", ". If they are for the pods on their nodes, have each adopted, such as: ")
}

// summarizeAdmission explains which fields admission sets; "" for none.
func summarizeAdmission(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	return fmt.Sprintf("an admission webhook or policy changes what is written, so these fields are left as it sets "+
		"them: %s. Change them in this LocalService, or exempt its Services, and their EndpointSlices, from that webhook "+
		"or policy: they are written again within two minutes", strings.Join(fields, ", "))
}

// summarizeUndone explains what else sets fields after they were written, on the first of the objects; "" for none.
// It does not count the objects, because some of them are always being written again.
func summarizeUndone(undone []*ContestedError) string {
	if len(undone) == 0 {
		return ""
	}
	first := slices.MinFunc(undone, func(a, b *ContestedError) int { return strings.Compare(a.Object, b.Object) })
	return fmt.Sprintf("%s: %s. Leave that out of this LocalService, or stop what sets it: it is written again within "+
		"two minutes", first.Object, words.Printable(first.Error()))
}

// verbs lists the words for actions in events, in the order in which events list them.
var verbs = []struct {
	action  plan.Action
	written string
}{
	{plan.Create, "created %d: "},
	{plan.Adopt, "adopted %d: "},
	{plan.Update, "updated %d: "},
	{plan.Delete, "deleted %d: "},
}

// Renamed returns a suffix for the event about an updated Service, if the names of mode Hostnames change with it,
// because groupBy was edited; "" if they do not.
func Renamed(ls *v1alpha1.LocalService, p *plan.Plan) string {
	for _, change := range p.Changes[plan.Update] {
		was, isKnown := change.Current.Annotations[v1alpha1.GroupByAnnotationKey]
		if isKnown && change.Name == ls.Name && was != ls.Spec.GroupBy {
			return fmt.Sprintf("; the names change: groupBy was %q, and is %q", was, ls.Spec.GroupBy)
		}
	}
	return ""
}

// Gone returns a suffix for the event about deleted Services that names the nodes that no longer exist; "" if all do.
func Gone(p *plan.Plan, exists func(node string) bool) string {
	var gone []string
	for _, change := range p.Changes[plan.Delete] {
		if change.Node != "" && !exists(change.Node) {
			gone = append(gone, change.Node)
		}
	}
	if len(gone) == 0 {
		return ""
	}
	return "; nodes that are gone: " + words.List(gone, namesInEvent)
}

// SummarizeMade lists the Services that were written, "" for none:
// "created 1: demo-a; deleted 4: demo-b, demo-c, demo-d and 1 more".
func SummarizeMade(names map[plan.Action][]string) string {
	var parts []string
	for _, v := range verbs {
		written := slices.Sorted(slices.Values(names[v.action]))
		if len(written) == 0 {
			continue
		}
		parts = append(parts, fmt.Sprintf(v.written, len(written))+words.List(written, namesInEvent))
	}
	return strings.Join(parts, "; ")
}
