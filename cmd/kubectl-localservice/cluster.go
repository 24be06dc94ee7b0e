package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/localservice-dev/local-service-controller/cmd/kubectl-localservice/diagnose"
	"github.com/localservice-dev/local-service-controller/internal/words"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

// cluster holds the clients that the commands read with.
type cluster struct {
	namespace     string
	kubectl       string // the command that works with the same cluster
	kube          kubernetes.Interface
	localServices clientset.Interface
	// forward forwards a local port to a port of a pod, until ctx is done, and returns the local address. Tests replace
	// it.
	forward func(ctx context.Context, namespace, pod string, port int32) (address string, err error)
}

// newCluster makes the clients that the flags ask for. They are not throttled: there are few requests, and the API
// server has its own priority and fairness.
func (p *plugin) newCluster() (*cluster, error) {
	namespace, _, err := p.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := p.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1
	localServices, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	kube, err := kubernetes.NewForConfig(config)
	return &cluster{namespace, p.kubectl(), kube, localServices, newForward(config, kube)}, err
}

// flagsOfCluster returns those flags of this command that choose the cluster.
func (p *plugin) flagsOfCluster() (flags []string) {
	for _, flag := range []struct {
		name  string
		value *string
	}{{"--kubeconfig", p.config.KubeConfig}, {"--context", p.config.Context}, {"--cluster", p.config.ClusterName},
		{"--server", p.config.APIServer}, {"--user", p.config.AuthInfoName}} {
		if value := ptr.Deref(flag.value, ""); value != "" {
			flags = append(flags, flag.name+"="+value)
		}
	}
	return flags
}

// plain matches a word that a shell takes as it is.
var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

const kubectlCommand = "kubectl"

// kubectl returns the command that works with the same cluster, for a shell.
func (p *plugin) kubectl() string {
	command := kubectlCommand
	for _, flag := range p.flagsOfCluster() {
		if !plain.MatchString(flag) {
			flag = "'" + strings.ReplaceAll(flag, "'", `'\''`) + "'"
		}
		command += " " + flag
	}
	return command
}

func (c *cluster) localService(ctx context.Context, name string) (*v1alpha1.LocalService, error) {
	ls, err := c.localServices.LocalserviceV1alpha1().LocalServices(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err = known(err); apierrors.IsNotFound(err) && !isUnknown(err) {
		return nil, errors.New(words.Join(". ", fmt.Sprintf("there is no LocalService %s/%s: `%s get localservices -n %s` "+
			"lists those of this namespace, -n chooses another one", c.namespace, name, c.kubectl, c.namespace),
			c.orphans(ctx, name)))
	}
	return ls, err
}

// orphans says that Services of a deleted LocalService are left, of any one for the name "".
func (c *cluster) orphans(ctx context.Context, name string) string {
	services, err := c.kube.CoreV1().Services(c.namespace).List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && i < len(services.Items); i++ {
		s := &services.Items[i]
		owner := s.Labels[v1alpha1.OwnerLabelKey]
		isGenerated := s.Annotations[v1alpha1.NodeAnnotationKey]+s.Labels[v1alpha1.HostnamesLabelKey] != ""
		if isGenerated && metav1.GetControllerOfNoCopy(s) == nil && owner == cmp.Or(name, owner) {
			return fmt.Sprintf("Services of a deleted LocalService %s/%s are left (--cascade=orphan), and will not lead to "+
				"new pods. Create it again, or delete them: %s delete services -n %[1]s -l owner=%[2]s", s.Namespace, owner,
				c.kubectl)
		}
	}
	return ""
}

// isUnknown reports whether the resource itself is not found: then the response has no Status.
func isUnknown(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// known adds to an error that LocalServices are not installed, if that is the cause.
func known(err error) error {
	if isUnknown(err) {
		return fmt.Errorf("the cluster does not know LocalServices: install local-service-controller, by "+
			"install.yaml of a release or its Helm chart: %w", err)
	}
	return err
}

const (
	// leaseName is the default name of the controller's Lease.
	leaseName = "local-service-controller"
	// renewal is the time in which a controller that runs renews its Lease: by default it does so twice a second.
	renewal = 3 * time.Second
	// clockSkew is by how much the clocks of machines may differ. A Lease that was renewed later is not a controller's.
	clockSkew = 5 * time.Minute
)

// controller finds out from the controller's Lease whether it runs, the zero value if that cannot be known: a
// controller outside the cluster has none, and many users may not read it. The clocks of this machine and of the
// controller may differ, so a Lease that seems to be old is read again after it should have been renewed.
func (c *cluster) controller(ctx context.Context) diagnose.Controller {
	lease, watched := c.lease(ctx)
	if lease == nil {
		return diagnose.Controller{}
	}
	holder, _, _ := strings.Cut(ptr.Deref(lease.Spec.HolderIdentity, ""), "_")
	if holder != "" && len(content.IsDNS1123Subdomain(holder)) > 0 {
		holder = "POD" // Messages have commands to copy, and whoever may write Leases can write anything here.
	}
	found := diagnose.Controller{Namespace: lease.Namespace, Name: lease.Name, Holder: holder,
		Renewed: lease.Spec.RenewTime.Time, Namespaces: watched,
		Unguarded: lease.Annotations[v1alpha1.UnguardedAnnotationKey]}
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if holder != "" && time.Since(found.Renewed) <= lasts {
		return found
	}
	sleep(ctx, renewal)
	again, _ := c.lease(ctx)
	found.Stopped = again != nil && again.Spec.RenewTime.Equal(lease.Spec.RenewTime)
	return found
}

// lease returns the controller's Lease, nil if there is none that may be read: the one where the documents install it,
// otherwise the one that was renewed last, of those with its name. Several controllers may share the cluster: watched
// has the namespaces of all that hold a Lease, and metav1.NamespaceAll if one of them watches all.
func (c *cluster) lease(ctx context.Context) (lease *coordinationv1.Lease, watched []string) {
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, leaseName).String()}
	list, err := c.kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, named)
	if err != nil {
		list, err = c.kube.CoordinationV1().Leases(diagnose.UsualNamespace).List(ctx, named)
	}
	rank := func(l *coordinationv1.Lease) int { // Anybody may make one that nobody holds.
		return map[string]int{diagnose.UsualNamespace: 2}[l.Namespace] + min(len(ptr.Deref(l.Spec.HolderIdentity, "")), 1)
	}
	for i := 0; err == nil && i < len(list.Items); i++ {
		l := &list.Items[i]
		if l.Spec.RenewTime == nil || time.Until(l.Spec.RenewTime.Time) > clockSkew {
			continue
		}
		if rank(l) > 0 {
			watched = append(watched, strings.Split(l.Annotations[v1alpha1.NamespacesAnnotationKey], ",")...)
		}
		if lease == nil || cmp.Or(rank(l)-rank(lease), l.Spec.RenewTime.Compare(lease.Spec.RenewTime.Time)) > 0 {
			lease = l
		}
	}
	return lease, watched
}

const (
	// aroundLasts is for how long a watch keeps what it has seen around LocalServices.
	aroundLasts = 15 * time.Second
	// aroundTimeout bounds how long a look around takes: the nodes are not shown before it ends.
	aroundTimeout = 5 * time.Second
	// aroundLimit is how many objects of each kind a look around reads.
	aroundLimit = 500
)

// lookAround reads what says why pods of a namespace are missing. What the user may not read is left out.
func (c *cluster) lookAround(ctx context.Context, namespace string) (out diagnose.Around) {
	ctx, cancel := context.WithTimeout(ctx, aroundTimeout)
	defer cancel()
	opts, apps := metav1.ListOptions{Limit: aroundLimit}, c.kube.AppsV1()
	add := func(kind string, meta *metav1.ObjectMeta, template *corev1.PodTemplateSpec, replicas int32) {
		out.Workloads = append(out.Workloads, diagnose.Workload{Kind: kind, Name: meta.Name, Labels: template.Labels,
			Replicas: replicas})
	}
	// Each of these may fail without the others.
	if pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, opts); err == nil {
		out.Pods = pods.Items
	}
	deployments, err := apps.Deployments(namespace).List(ctx, opts)
	for i := 0; err == nil && i < len(deployments.Items); i++ {
		d := &deployments.Items[i]
		add("Deployment", &d.ObjectMeta, &d.Spec.Template, ptr.Deref(d.Spec.Replicas, 1))
	}
	statefulSets, err := apps.StatefulSets(namespace).List(ctx, opts)
	for i := 0; err == nil && i < len(statefulSets.Items); i++ {
		s := &statefulSets.Items[i]
		add("StatefulSet", &s.ObjectMeta, &s.Spec.Template, ptr.Deref(s.Spec.Replicas, 1))
	}
	daemonSets, err := apps.DaemonSets(namespace).List(ctx, opts)
	for i := 0; err == nil && i < len(daemonSets.Items); i++ {
		d := &daemonSets.Items[i]
		add("DaemonSet", &d.ObjectMeta, &d.Spec.Template, math.MaxInt32) // It depends on the nodes.
	}
	for _, reason := range diagnose.EventReasons {
		opts.FieldSelector = fields.OneTermEqualSelector("reason", reason).String()
		if events, err := c.kube.CoreV1().Events(namespace).List(ctx, opts); err == nil {
			out.Events = append(out.Events, events.Items...)
		}
	}
	return out
}

// elsewhere returns other namespaces with pods like those of a LocalService, as far as the user may list them.
func (c *cluster) elsewhere(ctx context.Context, ls *v1alpha1.LocalService) []string {
	ctx, cancel := context.WithTimeout(ctx, aroundTimeout)
	defer cancel()
	pods, err := c.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: aroundLimit,
		LabelSelector: selectorOf(ls.Spec.Selector).String()})
	namespaces := sets.New[string]()
	for i := 0; err == nil && i < len(pods.Items); i++ {
		namespaces.Insert(pods.Items[i].Namespace)
	}
	return sets.List(namespaces.Delete(ls.Namespace))
}
