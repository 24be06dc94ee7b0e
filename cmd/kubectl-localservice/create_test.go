package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// TestCreateFile: --dry-run=client prints a file, without a cluster.
func TestCreateFile(t *testing.T) {
	for args, want := range map[string]string{
		"--selector app=cache -o yaml": `
apiVersion: localservice.dev/v1alpha1
kind: LocalService
metadata:
  name: cache
spec:
  selector:
    app: cache
`,
		"-n ops --selector app=cache --selector tier=a --port http=80:80 --port dns=53/udp --port web=81:web --headless " +
			"--mode Hostnames --node-selector disk=ssd -o yaml": `
apiVersion: localservice.dev/v1alpha1
kind: LocalService
metadata:
  name: cache
  namespace: ops
spec:
  clusterIP: None
  mode: Hostnames
  nodeSelector:
    disk: ssd
  ports:
  - name: http
    port: 80
    protocol: TCP
    targetPort: 80
  - name: dns
    port: 53
    protocol: UDP
    targetPort: 53
  - name: web
    port: 81
    protocol: TCP
    targetPort: web
  selector:
    app: cache
    tier: a
`,
		"--selector app=cache --node-selector disk=ssd,!node-role.kubernetes.io/control-plane --node-selector gpu -o yaml": `
apiVersion: localservice.dev/v1alpha1
kind: LocalService
metadata:
  name: cache
spec:
  nodeSelector:
    disk: ssd
  nodeSelectorTerms:
  - matchExpressions:
    - key: gpu
      operator: Exists
    - key: node-role.kubernetes.io/control-plane
      operator: DoesNotExist
  selector:
    app: cache
`,
		"--selector app=cache":         "\nlocalservice.localservice.dev/cache created (dry run)\n",
		"--selector app=cache -o name": "\nlocalservice.localservice.dev/cache\n",
	} {
		f := newFixture(t)
		f.want(t, want[1:], "", append([]string{"create", "cache", "--dry-run=client"}, strings.Fields(args)...)...)
		if requests := f.localServices.Actions(); len(requests) > 0 {
			t.Errorf("%s: requests %v", args, requests)
		}
	}
}

func TestCreate(t *testing.T) {
	f := newFixture(t)
	f.want(t, "localservice.localservice.dev/cache created\n", "", "create", "cache", "-n", "ops", "--selector",
		"app=cache", "--port", "80:web")
	ls, err := f.localServices.LocalserviceV1alpha1().LocalServices("ops").Get(t.Context(), "cache",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.LocalServiceSpec{Selector: map[string]string{"app": "cache"},
		Ports: []v1alpha1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("web")}}}
	if diff := cmp.Diff(want, ls.Spec, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.run(t, "create", "other", "--selector", "app=cache", "--dry-run=server")
	action := f.localServices.Actions()[len(f.localServices.Actions())-1].(clienttesting.CreateActionImpl)
	if action.CreateOptions.DryRun == nil || action.CreateOptions.FieldManager != "kubectl-create" {
		t.Errorf("created with %+v", action.CreateOptions)
	}
}

// TestCreateHeadless: ports of headless names that nothing translates are reported at once.
func TestCreateHeadless(t *testing.T) {
	for port, want := range map[string]string{"8080": "", "80:web": "",
		"80:8080": "warning: clients must connect to port 8080 (not 80): a headless Service does not translate ports\n"} {
		code, _, stderr := newFixture(t).run(t, "create", "x", "--selector", "a=b", "--headless", "--port", port,
			"--dry-run=client")
		if code != 0 || stderr != want {
			t.Errorf("%s: %d, %q; want %q", port, code, stderr, want)
		}
	}
}

func TestCreateErrors(t *testing.T) {
	for args, want := range map[string]string{
		"create --selector a=b": "accepts 1 arg(s), received 0…" +
			"Usage: kubectl localservice create NAME",
		"create x":               `required flag(s) "selector" not set`,
		"create x --selector a":  `--selector "a": give labels as key=value`,
		"create x --selector a,": `--selector "a,": give labels as key=value`,
		"create x --selector a=b --node-selector c=d=e":                   "--node-selector: ",
		"create x --selector a=b --node-selector c!=d":                    `--node-selector: "!=" is not a valid label selector operator: use`,
		"create x --selector a=b --node-selector c=d,c=e":                 "--node-selector: a label has two values",
		"create x --selector a=b,a=c":                                     "each key once",
		"create x --selector a=b --selector a=c":                          `--selector "a=b,a=c": give labels as key=value, each key once`,
		"create x --selector a=b --node-selector c=d --node-selector c=e": "--node-selector: a label has two values",
		"create x --selector a=b,c":                                       `--selector "a=b,c": give labels as key=value`,
		"create x --selector a=b --port x":                                "--port x: it must be [name=]port",
		"create x --selector a=b --port 0":                                "--port 0: a port must be between 1 and 65535, inclusive",
		"create x --selector a=b --port 65536":                            "--port 65536: a port must be between 1 and 65535, inclusive",
		"create x --selector a=b --port 80:65536":                         "--port 80:65536: a port must be between",
		"create x --selector a=b --port 0:web":                            "--port 0:web: a port must be between",
		"create x --selector a=b --port 80:":                              "--port 80:: it must be",
		"create x --selector a=b --port 80/":                              "--port 80/: it must be",
		"create x --selector a=b --dry-run":                               "--dry-run must be none, client or server",
		"create demo --selector a=b":                                      `create LocalService default/demo: …already exists`,
		"create x --selector a=b --dry-run=client -o x":                   "allowed formats",
	} {
		newFixture(t).wantError(t, want, strings.Fields(args)...)
	}
	f := newFixture(t)
	fail(&f.localServices.Fake, "localservices", apierrors.NewForbidden(v1alpha1.Resource("localservices"), "x",
		errors.New(`User "jane" cannot create resource "localservices"`)))
	f.wantError(t, `error: ask for…User "jane" cannot create`, "create", "x", "--selector", "a=b")
}
