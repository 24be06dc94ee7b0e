package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/pkg/naming"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// theirs is the key of the label and the annotation that somebody else sets on Services.
const theirs = "example.com/theirs"

// withoutTheirs returns labels or annotations without those of somebody else.
func withoutTheirs(all map[string]string) map[string]string {
	own := maps.Clone(all)
	delete(own, theirs)
	return own
}

// seedOr returns $SEED, or another seed if it is not given.
func seedOr(other uint64) uint64 {
	if given, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		return given
	}
	return other
}

// randomEdits is how often a LocalService is edited.
const randomEdits = 60

// TestEveryFieldRandomEdits gives a LocalService specs that combine fields which other tests set one at a time. After
// each spec that the API server accepts, the Services follow it with no more writes than necessary, they keep what
// others have set on them, and the controller has nothing else to write, even after another sync.
func TestEveryFieldRandomEdits(t *testing.T) {
	t.Parallel()
	seed := seedOr(uint64(time.Now().UnixNano()))
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newScene(t, framework.NewCluster(t, dualStack(dualStackRanges)), "random")
	s.NewController(t, "-v=4")
	f := s.newFence()
	for name, disk := range map[string]string{"a": "ssd", "b": "hdd", "c": ""} {
		s.CreateNode(s.NodeName(name), map[string]string{"disk": disk})
	}
	s.CreateReady("demo")
	f.passLocalServices()
	accepted, touches := 0, map[types.UID]string{}
	for i := range randomEdits {
		texts := s.randomFields(random)
		if s.edit(f, touches, texts) {
			accepted++
			s.touch(f, touches, fmt.Sprint(i))
		}
	}
	t.Logf("%d of %d edits were accepted", accepted, randomEdits)
	if accepted == 0 {
		t.Error("none of the edits was accepted")
	}
}

// randomFields returns a form of Services, families, some values of the walks that suit the form, and a selection of
// the nodes of the scene.
func (s *scene) randomFields(random *rand.Rand) []string {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	forms := []string{"", addressed, nodePorts, loadBalancers} // Each has the fields of those before it.
	form := random.IntN(len(forms))
	texts := []string{headless, forms[form], stackSteps[random.IntN(len(stackSteps))].fields}
	for _, name := range slices.Sorted(maps.Keys(fieldWalks)) {
		w := fieldWalks[name]
		needs := slices.Index(forms, w.before)
		if needs > form || random.IntN(4) > 0 {
			continue
		}
		if needs < 0 {
			texts = append(texts, w.before)
		}
		texts = append(texts, pick(w.values...))
	}
	disk := pick("", "", ", disk: ssd", ", disk: hdd")
	return append(texts, fmt.Sprintf("nodeSelector: {%s: %s%s}", framework.SceneLabel, s.Namespace, disk))
}

// edit gives LocalService demo a spec, and checks its Services afterwards. It returns false if the API server refuses
// the spec. touches has what somebody else has set on Services, by their UID.
func (s *scene) edit(f *fence, touches map[types.UID]string, texts []string) (accepted bool) {
	s.T.Helper()
	ls, err := s.LocalServiceClient().Get(s.Ctx(), "demo", metav1.GetOptions{})
	s.Must(err)
	before, err := s.OwnedServices(s.Ctx(), ls)
	s.Must(err)
	s.ResetCount()
	if err := s.TryUpdate("demo", spec(texts...)); apierrors.IsInvalid(err) {
		return false
	} else if err != nil {
		s.Fatalf("%q: %v", texts, err)
	}
	ls = s.WaitReady("demo")
	f.passServices()
	f.passLocalServices()
	after := s.MustOwn(ls, int(ls.Status.Nodes))
	want := map[string]int{"create": 0, "delete": 0, "patch": 0}
	for name, now := range after {
		node := now.Annotations[v1alpha1.NodeAnnotationKey]
		s.checkFollows(ls, now, node)
		if name != naming.ServiceName("demo", node) || now.Labels[theirs] != touches[now.UID] ||
			now.Annotations[theirs] != touches[now.UID] {
			s.Fatalf("%q: Service %s of node %s: what others had set, %q, is not there any more: %v %v",
				texts, name, node, touches[now.UID], now.Labels, now.Annotations)
		}
		switch was := before[name]; {
		case was == nil || was.UID != now.UID:
			want["create"]++
		case was.ResourceVersion != now.ResourceVersion:
			want["patch"]++
		}
	}
	for name, was := range before {
		if after[name] == nil || after[name].UID != was.UID {
			want["delete"]++
		}
	}
	writes := s.Requests().Resource("services").Writes()
	got := map[string]int{}
	for verb := range want {
		got[verb] = len(writes.Verb(verb).Where(framework.Succeeded))
	}
	if !maps.Equal(got, want) || len(writes) != want["create"]+want["delete"]+want["patch"] {
		s.Fatalf("%q: the controller's writes: %s; want %v. The Services before: %+v", texts, writes, want, before)
	}
	return true
}

// touch changes the Services of LocalService demo as cloud controllers and `kubectl annotate` do. The controller must
// not react.
func (s *scene) touch(f *fence, touches map[types.UID]string, value string) {
	s.T.Helper()
	s.ResetCount()
	services, err := s.ServiceClient().List(s.Ctx(), metav1.ListOptions{})
	s.Must(err)
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`, theirs, value, theirs, value)
	for _, service := range services.Items {
		touches[service.UID] = value
		options := metav1.PatchOptions{FieldManager: "by-hand"}
		_, err := s.ServiceClient().Patch(s.Ctx(), service.Name, types.MergePatchType, patch, options)
		s.Must(err)
	}
	f.passServices()
	s.WantNoWrites("at rest, when others had changed what is theirs")
}
