package integration

import (
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	reads  = "get list watch"
	writes = "create update patch delete deletecollection"
	others = " *" // verbs that nobody has thought of
)

// impossible is what the controller must never be able to do, by the resources: what only mode Hostnames needs is not
// in it. A resource is name.group/subresource.
var impossible = map[string]string{
	"secrets":               reads + " " + writes + others,
	"configmaps":            reads + " " + writes,
	"serviceaccounts":       reads + " " + writes + " impersonate" + others,
	"serviceaccounts/token": "create",
	"users":                 "impersonate",
	"groups":                "impersonate",
	"userextras.authentication.k8s.io/scopes": "impersonate",
	"pods":                                  "get create update delete deletecollection" + others,
	"pods/exec":                             "get create",
	"pods/attach":                           "get create",
	"pods/portforward":                      "get create",
	"pods/proxy":                            "get create update patch delete",
	"pods/log":                              "get",
	"pods/ephemeralcontainers":              "get update patch",
	"pods/eviction":                         "create",
	"pods/binding":                          "create",
	"pods/status":                           "get update patch",
	"nodes":                                 writes + others,
	"nodes/proxy":                           "get create update patch delete",
	"nodes/status":                          "get update patch",
	"nodes/metrics":                         "get",
	"namespaces":                            reads + " " + writes,
	"services":                              "get update deletecollection" + others,
	"services/status":                       "get update patch",
	"services/proxy":                        "get create update patch delete",
	"endpoints":                             reads + " " + writes,
	"localservices.localservice.dev":        writes + others,
	"localservices.localservice.dev/status": "get update",
	"localservices.localservice.dev/finalizers":                    "patch",
	"servicecidrs.networking.k8s.io":                               reads + " " + writes,
	"networkpolicies.networking.k8s.io":                            reads + " " + writes,
	"deployments.apps":                                             reads + " " + writes,
	"daemonsets.apps":                                              reads + " " + writes,
	"leases.coordination.k8s.io":                                   "list watch patch delete deletecollection",
	"clusterroles.rbac.authorization.k8s.io":                       writes + " escalate bind" + others,
	"clusterrolebindings.rbac.authorization.k8s.io":                writes + others,
	"roles.rbac.authorization.k8s.io":                              writes + " escalate bind" + others,
	"rolebindings.rbac.authorization.k8s.io":                       writes + others,
	"customresourcedefinitions.apiextensions.k8s.io":               writes,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":   writes,
	"validatingwebhookconfigurations.admissionregistration.k8s.io": writes,
	"mutatingadmissionpolicies.admissionregistration.k8s.io":       writes,
	"validatingadmissionpolicies.admissionregistration.k8s.io":     writes,
	"certificatesigningrequests.certificates.k8s.io":               writes,
	"certificatesigningrequests.certificates.k8s.io/approval":      "update",
	"tokenreviews.authentication.k8s.io":                           "create",
	"subjectaccessreviews.authorization.k8s.io":                    "create",
	"*":   reads + " " + writes + others,
	"*.*": reads + " " + writes + others,
}

// ofSlices are the permissions that only mode Hostnames needs.
var ofSlices = map[string]string{
	"endpointslices.discovery.k8s.io": "get create update patch delete deletecollection",
	"services/finalizers":             "update",
}

// TestImpossible asks the API server, as the controller, for what it must never be able to do: in its own namespace,
// where it has most permissions, in another one, and in all.
func TestImpossible(t *testing.T) {
	t.Parallel()
	for name, files := range map[string][]string{
		"without Hostnames": {framework.ControllerPermissions},
		"deployed":          {framework.ControllerPermissions, framework.HostnamesPermissions},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, shared, "impossible")
			shipped, err := framework.ShippedPermissions(files...)
			s.Must(err)
			may := newAsker(s, s.NewAccount(t, s.Namespace, "controller", shipped))
			for _, namespace := range []string{metav1.NamespaceAll, s.Namespace, "default"} {
				for resource, verbs := range impossible {
					may.none(namespace, resource, verbs)
				}
				for resource, verbs := range ofSlices {
					if len(files) == 1 {
						may.none(namespace, resource, verbs)
					}
				}
				if len(files) > 1 {
					may.none(namespace, "endpointslices.discovery.k8s.io", "patch deletecollection *")
				}
				if namespace != s.Namespace {
					may.none(namespace, "leases.coordination.k8s.io", "get create update")
				}
			}
			if !may.ask(&authorizationv1.ResourceAttributes{Verb: "list", Resource: "services"}) {
				t.Error("the controller may not list Services: this test would find nothing")
			}
		})
	}
}

// asker asks the API server what an account may do.
type asker struct {
	*scene
	client kubernetes.Interface
}

func newAsker(s *scene, kubeconfig string) asker {
	s.T.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	s.Must(err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	s.Must(err)
	return asker{s, client}
}

func (a asker) ask(what *authorizationv1.ResourceAttributes) bool {
	a.T.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what}}
	review, err := a.client.AuthorizationV1().SelfSubjectAccessReviews().Create(a.Ctx(), review, metav1.CreateOptions{})
	a.Must(err)
	return review.Status.Allowed
}

// none fails if any of the verbs is allowed.
func (a asker) none(namespace, resource, verbs string) {
	a.T.Helper()
	name, subresource, _ := strings.Cut(resource, "/")
	name, group, _ := strings.Cut(name, ".")
	for _, verb := range strings.Fields(verbs) {
		if a.ask(&authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: name,
			Subresource: subresource}) {
			a.T.Errorf("the controller may %s %s in namespace %q", verb, resource, namespace)
		}
	}
}
