package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// untried says why no pod is tried with an admission plug-in of the API server. Those that are about other objects, or
// about other operations than updates, are on in the trial, too.
var untried = map[string]string{
	"AlwaysDeny":         isOff + "refuses everything",
	"EventRateLimit":     isOff + "limits events, and needs a configuration",
	"ImagePolicyWebhook": isOff + "asks a webhook about images, changes nothing, and needs a configuration",

	"AlwaysAdmit":                  "does nothing",
	"NamespaceAutoProvision":       "creates namespaces",
	"NamespaceExists":              "refuses what is in no namespace",
	"NamespaceLifecycle":           "refuses creations in a namespace that is being deleted",
	"NodeRestriction":              "judges kubelets",
	"TaintNodesByCondition":        "creations of Nodes",
	"PodTopologyLabels":            "creations and bindings",
	"PodResizeValidator":           "judges the subresource resize, for which the controller has no permission",
	"NodeDeclaredFeatureValidator": "judges changes of containers, for which there is the subresource resize",
	"ValidatingAdmissionPolicy":    "judges by what users write, such as the guard",
	"ValidatingAdmissionWebhook":   "judges by what users write",
	"MutatingAdmissionPolicy":      "does what users write: they can exempt the controller",
	"MutatingAdmissionWebhook":     "does what users write: they can exempt the controller",

	"CertificateApproval": "other objects", "CertificateSigning": "other objects",
	"CertificateSubjectRestriction": "other objects", "ClusterTrustBundleAttest": "other objects",
	"DefaultIngressClass": "other objects", "DefaultStorageClass": "other objects",
	"PersistentVolumeClaimResize": "other objects", "PodGroupProtection": "other objects",
	"StorageObjectInUseProtection": "other objects",

	// The controller's Services and EndpointSlices are created, updated and adopted with these on.
	"DenyServiceExternalIPs":               "judges addresses that the controller never sets",
	"OwnerReferencesPermissionEnforcement": "judges owners, which the controller has permissions for",
}

const (
	isOff      = "is off: "
	trialClass = "guard-trial" // of priority, and of runtime, while a pod is created
)

// trial is an update of a pod that an admission plug-in might have something to say about.
type trial struct {
	plugin string
	pod    func(*corev1.Pod) // makes it a pod of that kind
	// later is done once the pod exists.
	later func(s *scene) error
	// adds are the tolerations that the plug-in adds.
	adds []corev1.Toleration
	// refuses is the plug-in's reason why nobody may update the pod, if there is one.
	refuses string
}

const defaultSeconds = "DefaultTolerationSeconds"

// defaults are the tolerations that it adds. All other pods have them already.
var defaults = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: new(int64(300))},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		TolerationSeconds: new(int64(300))},
}

// tolerate returns the toleration of all taints with a key, which keep new pods away.
func tolerate(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

func requesting(name corev1.ResourceName) func(*corev1.Pod) {
	one := corev1.ResourceList{name: resource.MustParse("1")}
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
	}
}

var trials = []trial{
	{plugin: defaultSeconds, adds: defaults},
	{plugin: defaultSeconds, adds: defaults, pod: func(pod *corev1.Pod) { // Another effect is another matter.
		pod.Spec.Tolerations = []corev1.Toleration{tolerate(corev1.TaintNodeNotReady)}
	}},
	{plugin: "PodTolerationRestriction", pod: requesting("cpu"),
		adds: []corev1.Toleration{tolerate(corev1.TaintNodeMemoryPressure)}},
	{plugin: "PodTolerationRestriction", pod: func(pod *corev1.Pod) { // It removes one of two equal ones.
		requesting("cpu")(pod)
		pod.Spec.Tolerations = []corev1.Toleration{tolerate("twice"), tolerate("twice")}
	}, adds: []corev1.Toleration{tolerate(corev1.TaintNodeMemoryPressure)}},
	{plugin: "PodTolerationRestriction", pod: func(pod *corev1.Pod) { // It removes one that another one includes.
		requesting("cpu")(pod)
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}, tolerate("any")}
	}, refuses: "existing toleration can not be modified"},
	{plugin: "ExtendedResourceToleration", pod: requesting("example.com/gpu"),
		adds: []corev1.Toleration{tolerate("example.com/gpu")}},
	{plugin: "AlwaysPullImages", pod: func(pod *corev1.Pod) {
		pod.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
	}},
	{plugin: "LimitPodHardAntiAffinityTopology", pod: func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: app}}}}}
	}, refuses: "affinity.PodAntiAffinity"},
	{plugin: "LimitRanger", later: func(s *scene) error {
		ranges := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "range"}, Spec: corev1.LimitRangeSpec{
			Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
				Default: corev1.ResourceList{"cpu": resource.MustParse("1m")}}}}}
		_, err := s.Kube.CoreV1().LimitRanges(s.Namespace).Create(s.Ctx(), ranges, metav1.CreateOptions{})
		return err
	}},
	{plugin: "PodNodeSelector", later: func(s *scene) error {
		return s.patchNamespace(`{"metadata":{"annotations":{"scheduler.alpha.kubernetes.io/node-selector":"a=b"}}}`)
	}},
	{plugin: "PodSecurity", pod: func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }, later: func(s *scene) error {
		return s.patchNamespace(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	}},
	{plugin: "Priority", pod: func(pod *corev1.Pod) { pod.Spec.PriorityClassName = trialClass },
		later: func(s *scene) error {
			return s.Kube.SchedulingV1().PriorityClasses().Delete(s.Ctx(), trialClass, metav1.DeleteOptions{})
		}},
	{plugin: "ResourceQuota", later: func(s *scene) error {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": {}, "requests.cpu": {}}}}
		_, err := s.Kube.CoreV1().ResourceQuotas(s.Namespace).Create(s.Ctx(), quota, metav1.CreateOptions{})
		return err
	}},
	{plugin: "RuntimeClass", pod: func(pod *corev1.Pod) { pod.Spec.RuntimeClassName = new(trialClass) },
		later: func(s *scene) error {
			return s.Kube.NodeV1().RuntimeClasses().Delete(s.Ctx(), trialClass, metav1.DeleteOptions{})
		}},
	{plugin: "ServiceAccount", later: func(s *scene) error {
		_, err := s.Kube.CoreV1().ServiceAccounts(s.Namespace).Patch(s.Ctx(), "default", types.MergePatchType,
			[]byte(`{"imagePullSecrets":[{"name":"new"}]}`), metav1.PatchOptions{})
		return err
	}},
}

func (s *scene) patchNamespace(patch string) error {
	_, err := s.Kube.CoreV1().Namespaces().Patch(s.Ctx(), s.Namespace, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// TestGuardAndAdmissionPlugins: the guard permits the controller's writes whatever the API server's own admission
// plug-ins make of them. The pods are older than the plug-ins: a second API server has all of them on.
//
// What else the API server permits to change in a pod's spec, TestStolenToken changes. It cannot come of a change of a
// label: the API server's defaults are the same before and after, a pod with a node has no scheduling gates, and the
// API server stores no negative terminationGracePeriodSeconds, which it permits to correct. Resources and ephemeral
// containers have subresources of their own.
func TestGuardAndAdmissionPlugins(t *testing.T) {
	t.Parallel()
	options := publisher()
	options.Args = append(options.Args, "--apiserver-flag=--disable-admission-plugins="+defaultSeconds)
	cluster := framework.NewCluster(t, options)
	var on []string
	for _, name := range framework.AdmissionPlugins(t) {
		isTried := slices.ContainsFunc(trials, func(trial trial) bool { return trial.plugin == name })
		if isTried == (untried[name] != "") {
			t.Errorf("admission plug-in %s: it is to be tried, or there is to be a reason not to", name)
		}
		if !strings.HasPrefix(untried[name], isOff) {
			on = append(on, name)
		}
	}

	s := newScene(t, cluster, "plugins")
	node := s.AddNodes("a")[0]
	pods := s.makeTrials(node)
	second := &scene{&framework.Scene{Cluster: cluster.NewSecondAPIServer(t, "--disable-admission-plugins",
		"--enable-admission-plugins="+strings.Join(on, ",")), T: t, Namespace: s.Namespace}}
	second.NewController(t)
	config, err := clientcmd.BuildConfigFromFlags("", second.MustControllerKubeconfig(t))
	s.Must(err)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	controller, err := kubernetes.NewForConfig(config)
	s.Must(err)
	for i, trial := range trials {
		t.Run(trial.plugin, func(t *testing.T) { second.in(t).try(controller, trial, pods[i]) })
	}
	t.Run("policies", func(t *testing.T) { s.in(t).tryTolerations(controller, node) })
	t.Run("Services and EndpointSlices", func(t *testing.T) {
		s := s.in(t)
		s.CreateReady("demo", framework.WithClusterIP)
		s.Create("names", framework.WithHostnames, func(ls *v1alpha1.LocalService) { ls.Spec.Selector = app })
		s.WaitReady("names")
		s.WaitLabelled("server", node)
		for _, name := range []string{"demo", "names"} {
			s.Update(name, func(ls *v1alpha1.LocalService) { ls.Spec.PublishNotReadyAddresses = true })
			s.WaitReady(name)
		}
	})
}

// makeTrials makes the pods of the trials, and two more: "server" and "tolerant".
func (s *scene) makeTrials(node string) (pods []*corev1.Pod) {
	s.T.Helper()
	class := metav1.ObjectMeta{Name: trialClass}
	_, err1 := s.Kube.SchedulingV1().PriorityClasses().Create(s.Ctx(),
		&schedulingv1.PriorityClass{ObjectMeta: class, Value: 7}, metav1.CreateOptions{})
	_, err2 := s.Kube.NodeV1().RuntimeClasses().Create(s.Ctx(),
		&nodev1.RuntimeClass{ObjectMeta: class, Handler: "any"}, metav1.CreateOptions{})
	s.Must(errors.Join(err1, err2))
	for i, trial := range trials {
		pods = append(pods, s.CreatePod(fmt.Sprintf("trial-%d", i), node, nil, func(pod *corev1.Pod) {
			if trial.pod != nil {
				trial.pod(pod)
			}
			if trial.plugin != defaultSeconds {
				pod.Spec.Tolerations = append(pod.Spec.Tolerations, defaults...)
			}
		}))
	}
	s.run("server", node, "10.1.0.1")
	s.CreatePod("tolerant", node, nil, func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "has", Operator: corev1.TolerationOpExists,
			Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(9))}}
	})
	for _, trial := range trials {
		if trial.later != nil {
			s.Must(trial.later(s))
		}
	}
	return pods
}

// try gives a pod its node label, in the name of the controller.
func (s *scene) try(controller kubernetes.Interface, trial trial, pod *corev1.Pod) {
	s.T.Helper()
	label := []byte(`{"metadata":{"labels":{"` + nodeLabel + `":"` + pod.Spec.NodeName + `"}}}`)
	patch := func(client kubernetes.Interface) (*corev1.Pod, error) {
		return client.CoreV1().Pods(s.Namespace).Patch(s.Ctx(), pod.Name, types.MergePatchType, label,
			metav1.PatchOptions{})
	}
	if trial.refuses != "" {
		for _, client := range []kubernetes.Interface{s.Kube, controller} {
			if _, err := patch(client); err == nil || !strings.Contains(err.Error(), trial.refuses) {
				s.T.Errorf("the answer is not that %s: %v", trial.refuses, err)
			}
		}
		return
	}
	got, err := patch(controller)
	if err != nil {
		s.T.Fatal(err)
	}
	want := pod.Spec.DeepCopy()
	want.Tolerations = slices.CompactFunc(append(want.Tolerations, trial.adds...),
		func(a, b corev1.Toleration) bool { return equality.Semantic.DeepEqual(a, b) })
	if got.Labels[nodeLabel] != pod.Spec.NodeName || !equality.Semantic.DeepEqual(got.Spec, *want) {
		s.T.Errorf("the pod has the labels %v, and the spec\n%+v\nwant\n%+v", got.Labels, got.Spec, *want)
	}
}

// tryTolerations does with the tolerations of pod "tolerant" what policies of users may do at each update of a pod.
func (s *scene) tryTolerations(controller kubernetes.Interface, node string) {
	s.T.Helper()
	const has = `{"key":"has","operator":"Exists","effect":"NoExecute","tolerationSeconds":9}`
	const more = `{"operator":"Exists"}`
	for _, list := range []string{has + "," + more, more + "," + has, has + "," + has} {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}},"spec":{"tolerations":[%s]}}`, nodeLabel, node, list)
		_, err := controller.CoreV1().Pods(s.Namespace).Patch(s.Ctx(), "tolerant", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			s.T.Errorf("with the tolerations %s: %v", list, err)
		}
	}
}
