package framework

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// Files of artifacts/deploy with permissions: those that the controller always needs, those for mode Hostnames, and
// those for metrics that not everybody may read.
const (
	ControllerPermissions    = "local-service-controller.yaml"
	HostnamesPermissions     = "hostnames.yaml"
	SecureMetricsPermissions = "metrics-secure.yaml"
)

// Permissions are the permissions of an account.
type Permissions struct {
	// Rules apply to the whole cluster, and OwnRules only to the account's namespace.
	Rules, OwnRules []rbacv1.PolicyRule
	// NodeLabelKey is the label of pods that the guard lets the account write, the default one if empty.
	NodeLabelKey string
}

// ShippedPermissions returns what files of artifacts/deploy grant to the controller.
func ShippedPermissions(files ...string) (p Permissions, err error) {
	for _, file := range files {
		objects, err := readManifest(file)
		if err != nil {
			return p, err
		}
		granted := map[string]bool{} // by kind and name of the role
		for _, object := range objects {
			binding := &rbacv1.ClusterRoleBinding{} // A RoleBinding has the same fields.
			if kind := object.GetKind(); kind != "ClusterRoleBinding" && kind != "RoleBinding" {
				continue
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
				return p, fmt.Errorf("%s: %w", file, err)
			}
			granted[binding.RoleRef.Kind+" "+binding.RoleRef.Name] = true
		}
		for _, object := range objects {
			name := object.GetKind() + " " + object.GetName()
			if !granted[name] {
				continue
			}
			delete(granted, name)
			role := &rbacv1.ClusterRole{} // A Role has the same rules.
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
				return p, fmt.Errorf("%s: %w", file, err)
			}
			if object.GetKind() == "Role" {
				p.OwnRules = append(p.OwnRules, role.Rules...)
			} else {
				p.Rules = append(p.Rules, role.Rules...)
			}
		}
		for name := range granted {
			return p, fmt.Errorf("%s binds %s, whose rules are elsewhere", file, name)
		}
	}
	if len(p.Rules)+len(p.OwnRules) == 0 {
		err = fmt.Errorf("%v grant nothing", files)
	}
	return p, err
}

// Permission is one verb on one resource.
type Permission struct {
	// Resource may have a subresource: pods/exec.
	Verb, Group, Resource string
	// Name limits it to one object, "" for all, and Own to the account's namespace.
	Name string
	Own  bool
}

func (p Permission) String() string {
	resource := p.Resource
	if p.Group != "" {
		name, subresource, hasSubresource := strings.Cut(p.Resource, "/")
		if resource = name + "." + p.Group; hasSubresource {
			resource = name + "/" + subresource + "." + p.Group
		}
	}
	return p.Verb + " " + resource
}

// All returns the permissions one by one.
func (p Permissions) All() []Permission {
	return append(each(p.Rules, false), each(p.OwnRules, true)...)
}

func each(rules []rbacv1.PolicyRule, own bool) (all []Permission) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					name := strings.Join(rule.ResourceNames, ",") // There is at most one.
					all = append(all, Permission{verb, group, resource, name, own})
				}
			}
		}
	}
	return all
}

// Without returns a copy without one permission.
func (p Permissions) Without(taken Permission) Permissions {
	kept := Permissions{NodeLabelKey: p.NodeLabelKey}
	for _, permission := range p.All() {
		rule := rbacv1.PolicyRule{Verbs: []string{permission.Verb}, APIGroups: []string{permission.Group},
			Resources: []string{permission.Resource}}
		if permission.Name != "" {
			rule.ResourceNames = []string{permission.Name}
		}
		switch {
		case permission == taken:
		case permission.Own:
			kept.OwnRules = append(kept.OwnRules, rule)
		default:
			kept.Rules = append(kept.Rules, rule)
		}
	}
	return kept
}

// readManifest reads the objects in a file of artifacts/deploy.
func readManifest(file string) (objects []*unstructured.Unstructured, err error) {
	return ReadObjects(ModuleFile("artifacts", "deploy", file))
}

// ReadObjects reads the objects in a file.
func ReadObjects(path string) (objects []*unstructured.Unstructured, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(object.Object) > 0 { // A document may hold nothing but comments.
			objects = append(objects, object)
		}
	}
}

// ToLocalService returns an object as a LocalService, and an error if it has fields that the type has not.
func ToLocalService(object *unstructured.Unstructured) (ls v1alpha1.LocalService, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &ls, true)
	return ls, err
}
