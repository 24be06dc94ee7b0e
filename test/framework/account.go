package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// The account that artifacts/deploy runs the controller as.
const (
	ControllerNamespace = "local-service-system"
	ControllerAccount   = "local-service-controller"
)

// tokenDuration is longer than any test.
const tokenDuration = 24 * time.Hour

// accountKinds are the kinds of objects that make an account and its permissions.
var accountKinds = map[string]schema.GroupVersionResource{
	"Namespace":          {Version: "v1", Resource: "namespaces"},
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"ClusterRole":        rbacv1.SchemeGroupVersion.WithResource("clusterroles"),
	"ClusterRoleBinding": rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
	"Role":               rbacv1.SchemeGroupVersion.WithResource("roles"),
	"RoleBinding":        rbacv1.SchemeGroupVersion.WithResource("rolebindings"),
}

// ControllerKubeconfig returns a kubeconfig with the controller's credentials, whose permissions are those in
// artifacts/deploy, and which the guard judges. The controllers of all tests run with it, unless a test sets another
// one. The first call creates the account.
func (c *Cluster) ControllerKubeconfig(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.controllerKubeconfig != "" {
		return c.controllerKubeconfig, nil
	}
	files := []string{ControllerPermissions}
	if c.opts.Hostnames {
		files = append(files, HostnamesPermissions)
	}
	if err := c.grant(ctx, files...); err != nil {
		return "", err
	}
	shipped, err := ShippedPermissions(files...)
	if err == nil {
		err = c.waitGranted(ctx, ControllerNamespace, ControllerAccount, shipped)
	}
	if err == nil && !c.opts.WithoutGuard {
		err = c.InstallGuard(ctx)
	}
	if err == nil {
		c.controllerKubeconfig, err = c.accountKubeconfig(ctx, c.dir, ControllerNamespace, ControllerAccount)
	}
	return c.controllerKubeconfig, err
}

// MustControllerKubeconfig is ControllerKubeconfig for a test.
func (c *Cluster) MustControllerKubeconfig(t testing.TB) string {
	t.Helper()
	return must[string](t)(c.ControllerKubeconfig(t.Context()))
}

// grant creates the accounts and permissions in files of artifacts/deploy, but no other objects. What exists already
// stays unchanged.
func (c *Cluster) grant(ctx context.Context, files ...string) error {
	for _, file := range files {
		objects, err := readManifest(file)
		if err != nil {
			return err
		}
		for _, object := range objects {
			resource, isNeeded := accountKinds[object.GetKind()]
			if !isNeeded {
				continue
			}
			client := c.Dynamic.Resource(resource).Namespace(object.GetNamespace())
			_, err := client.Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create %s %s of %s: %w", object.GetKind(), object.GetName(), file, err)
			}
		}
	}
	return nil
}

// NewAccount creates an account with some permissions, in an existing namespace, and returns a kubeconfig for it. The
// guard judges it as it judges the controller's own account.
func (c *Cluster) NewAccount(t testing.TB, namespace, name string, p Permissions) string {
	t.Helper()
	ctx, create := t.Context(), metav1.CreateOptions{}
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	clusterMeta := metav1.ObjectMeta{Name: namespace + "-" + name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}}
	clusterRef := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterMeta.Name}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
	rbac := c.Kube.RbacV1()
	_, err1 := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: clusterMeta, Rules: p.Rules}, create)
	_, err2 := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: clusterMeta,
		RoleRef: clusterRef, Subjects: subjects}, create)
	_, err3 := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: p.OwnRules}, create)
	_, err4 := rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref,
		Subjects: subjects}, create)
	_, err5 := c.Dynamic.Resource(accountKinds["ServiceAccount"]).Namespace(namespace).Create(ctx,
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount",
			"metadata": map[string]any{"name": name}}}, create)
	err := errors.Join(err1, err2, err3, err4, err5)
	if err == nil {
		err = c.waitGranted(ctx, namespace, name, p)
	}
	if err == nil {
		_, err = c.createGuard(ctx, namespace, name, cmp.Or(p.NodeLabelKey, v1alpha1.DefaultNodeLabelKey))
	}
	if err != nil {
		t.Fatalf("make account %s/%s: %v", namespace, name, err)
	}
	return c.AccountKubeconfig(t, namespace, name)
}

// waitGranted waits until the API server, which watches roles, grants an account its permissions.
func (c *Cluster) waitGranted(ctx context.Context, namespace, name string, p Permissions) error {
	return Poll(ctx, func(ctx context.Context) error {
		for _, permission := range p.All() {
			review := &authorizationv1.SubjectAccessReview{}
			review.Spec.User = user(namespace, name)
			resource, subresource, _ := strings.Cut(permission.Resource, "/")
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: permission.Verb,
				Group: permission.Group, Resource: resource, Subresource: subresource, Name: permission.Name}
			if permission.Own {
				review.Spec.ResourceAttributes.Namespace = namespace
			}
			reviews := c.Kube.AuthorizationV1().SubjectAccessReviews()
			review, err := reviews.Create(ctx, review, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("%s may not %s yet", name, permission)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// AccountKubeconfig returns a kubeconfig with the credentials of a service account, which must exist.
func (c *Cluster) AccountKubeconfig(t testing.TB, namespace, name string) string {
	t.Helper()
	return must[string](t)(c.accountKubeconfig(t.Context(), t.TempDir(), namespace, name))
}

func (c *Cluster) accountKubeconfig(ctx context.Context, dir, namespace, name string) (path string, err error) {
	request := &authenticationv1.TokenRequest{}
	request.Spec.ExpirationSeconds = new(int64(tokenDuration.Seconds()))
	token, err := c.Kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("make a token for service account %s/%s: %w", namespace, name, err)
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return "", err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	path = filepath.Join(dir, filepath.Base(c.Kubeconfig)+"-"+name)
	return path, clientcmd.WriteToFile(*config, path)
}
