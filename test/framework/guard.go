package framework

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// guardFile is the file of artifacts/deploy with the policies that judge the controller's requests.
const guardFile = "guard.yaml"

var guardKinds = map[string]schema.GroupVersionResource{
	"ValidatingAdmissionPolicy": admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"),
	"ValidatingAdmissionPolicyBinding": admissionv1.SchemeGroupVersion.WithResource(
		"validatingadmissionpolicybindings"),
}

// InstallGuard installs the policies in artifacts/deploy/guard.yaml for the controller's account, and waits until they
// are in force.
func (c *Cluster) InstallGuard(ctx context.Context) error {
	name, err := c.createGuard(ctx, ControllerNamespace, ControllerAccount, v1alpha1.DefaultNodeLabelKey)
	if err != nil {
		return err
	}
	return c.waitGuarded(ctx, metav1.NamespaceDefault, user(ControllerNamespace, ControllerAccount), name)
}

// ExemptFromGuard takes a namespace from what an installed guard judges, and waits until that is so.
func (c *Cluster) ExemptFromGuard(ctx context.Context, namespace string) error {
	bindings := c.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	list, err := bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	elsewhere := fmt.Appendf(nil, `{"spec":{"matchResources":{"namespaceSelector":{"matchExpressions":[
		{"key":%q,"operator":"NotIn","values":[%q]}]}}}}`, corev1.LabelMetadataName, namespace)
	for _, b := range list.Items {
		if _, err := bindings.Patch(ctx, b.Name, types.MergePatchType, elsewhere, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("patch ValidatingAdmissionPolicyBinding %s: %w", b.Name, err)
		}
	}
	account := user(ControllerNamespace, ControllerAccount)
	if err := c.waitGuarded(ctx, namespace, account, ""); err != nil {
		return err
	}
	return c.waitGuarded(ctx, metav1.NamespaceDefault, account, ControllerAccount+"-guard")
}

// createGuard creates the policies in artifacts/deploy/guard.yaml for an account and a node label, as the comment there
// says to, and returns what their names begin with.
func (c *Cluster) createGuard(ctx context.Context, namespace, account, key string) (name string, err error) {
	objects, err := readManifest(guardFile)
	if err != nil {
		return "", err
	}
	own, name := user(ControllerNamespace, ControllerAccount), ControllerAccount+"-guard"
	if account != ControllerAccount || namespace != ControllerNamespace {
		name = namespace + "-" + account + "-guard"
	}
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return "", err
		}
		changed := strings.NewReplacer(own, user(namespace, account), ControllerAccount+"-guard", name,
			v1alpha1.DefaultNodeLabelKey, key).Replace(string(text))
		object.Object = nil
		if err := yaml.Unmarshal([]byte(changed), &object.Object); err != nil {
			return "", err
		}
		resource, isKnown := guardKinds[object.GetKind()]
		if !isKnown {
			return "", fmt.Errorf("%s has a %s", guardFile, object.GetKind())
		}
		strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		_, err = c.Dynamic.Resource(resource).Create(ctx, object, strict)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return name, nil
}

// waitGuarded waits until the API server, which watches policies, refuses to a user in a namespace what no controller
// asks for, by policies whose names begin with guard, or until it refuses nothing if that is "".
func (c *Cluster) waitGuarded(ctx context.Context, namespace, user, guard string) error {
	config := rest.CopyConfig(c.Config)
	// With the rights of an administrator, so that nothing else refuses it.
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	dryRun, trial := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ObjectMeta{Name: "trial"}
	return Poll(ctx, func(ctx context.Context) error {
		_, err1 := kube.CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: trial,
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}}, dryRun)
		_, err2 := kube.DiscoveryV1().EndpointSlices(namespace).Create(ctx,
			&discoveryv1.EndpointSlice{ObjectMeta: trial, AddressType: discoveryv1.AddressTypeIPv4}, dryRun)
		for _, err := range []error{err1, err2} {
			if isRefused := err != nil && strings.Contains(err.Error(), guard); isRefused != (guard != "") {
				return fmt.Errorf("the guard %q is not the one in force yet, for the answer is %q", guard,
					fmt.Sprint(err))
			}
		}
		return nil
	})
}

func user(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}
