package framework

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clientset "github.com/localservice-dev/local-service-controller/pkg/generated/clientset/versioned"
)

// CRDName is the name of our CustomResourceDefinition.
const CRDName = "localservices.localservice.dev"

// ClusterOptions say which cluster to start.
type ClusterOptions struct {
	// ControlPlaneOnly is for a cluster without nodes: Node objects are whatever the test creates, and nothing runs
	// pods. It needs no privileges.
	ControlPlaneOnly bool
	// Nodes are the names of the nodes, by default the playground's own.
	Nodes []string
	// Images are images for every node, by reference, each made from one static binary.
	Images map[string]string
	// Args are more flags of `playground up`.
	Args []string
	// WithoutCRD leaves the CustomResourceDefinition out.
	WithoutCRD bool
	// Hostnames grants the controller what only mode Hostnames needs.
	Hostnames bool
	// WithoutGuard leaves out the policies that let the controller's account do what the controller does, and no more.
	WithoutGuard bool
}

// ControlPlane is a cluster without kubelets, and without EndpointSlices, which would be half of all its writes.
func ControlPlane() ClusterOptions {
	return ClusterOptions{ControlPlaneOnly: true, Args: []string{
		"--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"}}
}

func (o *ClusterOptions) args(dir string) []string {
	args := []string{"up", "--dir", dir, "--audit", "--die-with-parent"}
	if o.ControlPlaneOnly {
		args = append(args, "--control-plane-only")
	}
	if len(o.Nodes) > 0 {
		args = append(args, "--nodes", strings.Join(o.Nodes, ","))
	}
	for reference, binary := range o.Images {
		args = append(args, "--image", reference+"="+binary)
	}
	if program := os.Getenv(controlPlaneVariable); program != "" {
		// Before 1.36, mutating admission policies are in none of the API versions that are served by default.
		args = append(args, "--control-plane", program,
			"--apiserver-flag=--feature-gates=MutatingAdmissionPolicy=true",
			"--apiserver-flag=--runtime-config="+
				"admissionregistration.k8s.io/v1beta1=true,admissionregistration.k8s.io/v1alpha1=true")
	}
	return append(args, o.Args...)
}

// controlPlaneVariable names the variable with the path of a program, if the control plane needs another version of
// Kubernetes than the playground has: see hack/control-plane.sh.
const controlPlaneVariable = "CONTROL_PLANE"

// Cluster is a running playground, with an administrator's clients for it.
type Cluster struct {
	*Process

	Kubeconfig    string
	Config        *rest.Config
	Kube          kubernetes.Interface
	LocalServices clientset.Interface
	Dynamic       dynamic.Interface
	Audit         *Audit

	opts ClusterOptions
	dir  string

	mu                   sync.Mutex
	controllers          []*Controller
	controllerKubeconfig string // "" until it is needed
}

// StartCluster starts a cluster with our CustomResourceDefinition. The caller stops it; NewCluster does that at the end
// of a test.
func StartCluster(ctx context.Context, opts ClusterOptions) (*Cluster, error) {
	path, err := PlaygroundProgram.Path()
	if err != nil {
		return nil, err
	}
	// A short path: those of the unix sockets in it are limited in length.
	dir, err := os.MkdirTemp("", "lsc")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, opts.args(dir)...)
	// SIGTERM lets it remove its directory. With --die-with-parent it also watches its parent.
	process, err := StartProcess(cmd, syscall.SIGTERM)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{
		Process:    process,
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		Audit:      &Audit{path: filepath.Join(dir, "logs", "audit.log")},
		opts:       opts,
		dir:        dir,
	}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// NewCluster is StartCluster for one test: the cluster ends with it.
func NewCluster(t testing.TB, opts ClusterOptions) *Cluster {
	t.Helper()
	c, err := StartCluster(t.Context(), opts)
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	return c
}

// prepare waits until the cluster is ready, and makes clients for it. The CustomResourceDefinition is created as soon
// as the API server answers, while its other components are starting: the garbage collector discovers resources when it
// starts, and then only every 30 seconds.
func (c *Cluster) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	if _, err := c.WaitFor(ctx, "answering requests", func() string { return c.answers(ctx) }); err != nil {
		return err
	}
	if !c.opts.WithoutCRD {
		if err := c.InstallCRD(ctx); err != nil {
			return err
		}
	}
	_, err := c.WaitFor(ctx, "ready", func() string { return readyLine.FindString(c.Output()) })
	return err
}

var readyLine = regexp.MustCompile(`(?m)^ready: .+$`)

// answers makes clients, if the kubeconfig exists already, and returns what the API server answers, "" for nothing.
func (c *Cluster) answers(ctx context.Context) string {
	if c.Kube == nil && c.connect() != nil {
		return ""
	}
	b, err := c.Kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	if err != nil {
		return ""
	}
	return string(b)
}

func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // Tests make objects as fast as they can.
	config.UserAgent = "integration-test"
	config.WarningHandler = rest.NoWarnings{}
	kube, err1 := kubernetes.NewForConfig(config)
	localServices, err2 := clientset.NewForConfig(config)
	dynamicClient, err3 := dynamic.NewForConfig(config)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	c.Config, c.Kube, c.LocalServices, c.Dynamic = config, kube, localServices, dynamicClient
	return nil
}

// InstallCRD creates our CustomResourceDefinition, as the documentation says to, and waits until it is served.
func (c *Cluster) InstallCRD(ctx context.Context) error {
	objects, err := ReadObjects(ModuleFile("artifacts", "examples", "crd.yaml"))
	if err != nil {
		return err
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if _, err := c.Dynamic.Resource(crds).Create(ctx, objects[0], strict); err != nil {
		return fmt.Errorf("create the CustomResourceDefinition: %w", err)
	}
	err = Poll(ctx, func(ctx context.Context) error {
		all := c.LocalServices.LocalserviceV1alpha1().LocalServices(metav1.NamespaceAll)
		_, err := all.List(ctx, metav1.ListOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("wait until LocalServices are served: %w", err)
	}
	return nil
}

// Kubectl runs kubectl for this cluster, and returns what it prints, the errors last.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	stdout, stderr, err := c.Playground(ctx, nil, append([]string{"kubectl"}, args...)...)
	return stdout + stderr, err
}

// RunKubectl is Kubectl for a test.
func (c *Cluster) RunKubectl(t testing.TB, args ...string) string {
	t.Helper()
	return must[string](t)(c.Kubectl(t.Context(), args...))
}

// Playground runs a command of the playground for this cluster, such as `run --node`.
func (c *Cluster) Playground(ctx context.Context, stdin []byte, args ...string) (stdout, stderr string, err error) {
	// Its caches are deleted with the directory.
	return PlaygroundProgram.Run(ctx, stdin, []string{"PLAYGROUND_DIR=" + c.dir, "KUBECONFIG=" + c.Kubeconfig,
		"KUBECACHEDIR=" + filepath.Join(c.dir, "kubectl-cache")}, args...)
}

// Dir returns the playground's directory.
func (c *Cluster) Dir() string { return c.dir }

// StartController runs another controller for this cluster, with the permissions in artifacts/deploy, and waits until
// it is ready.
func (c *Cluster) StartController(ctx context.Context, args ...string) (*Controller, error) {
	kubeconfig, err := c.ControllerKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	args = append([]string{"-kubeconfig=" + kubeconfig}, args...)
	controller, err := c.startController(args...)
	if err != nil {
		return nil, err
	}
	if err := controller.WaitReady(ctx); err != nil {
		controller.Kill()
		return nil, err
	}
	return controller, nil
}

// startController runs a controller whose log Describe prints with this cluster's state. It does not wait.
func (c *Cluster) startController(args ...string) (*Controller, error) {
	controller, err := StartController(ControllerOptions{Args: args})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controllers = append(c.controllers, controller)
	return controller, nil
}

// NewController is StartController for one test: the controller is ready, and ends with the test. An exit code other
// than 0 fails the test, unless the test has ended the controller already.
func (c *Cluster) NewController(t testing.TB, args ...string) *Controller {
	t.Helper()
	controller := c.LaunchController(t, append([]string{"-kubeconfig=" + c.MustControllerKubeconfig(t)}, args...)...)
	if err := controller.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return controller
}

// LaunchController is NewController without waiting until the controller is ready, and with only the given flags.
func (c *Cluster) LaunchController(t testing.TB, args ...string) *Controller {
	t.Helper()
	controller := must[*Controller](t)(c.startController(args...))
	t.Cleanup(func() {
		if !controller.Running() {
			return
		}
		if err := controller.Stop(); err != nil {
			t.Errorf("stop the controller: %v", err)
		}
	})
	return controller
}

// Controllers returns the controllers that were started for this cluster, even those that have ended.
func (c *Cluster) Controllers() []*Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.controllers)
}

// Stop ends the controllers of this cluster, and then the cluster. Stopping twice is fine.
func (c *Cluster) Stop() error {
	var errs []error
	for _, controller := range c.Controllers() {
		if controller.Running() {
			errs = append(errs, controller.Stop())
		}
	}
	if exitCode, err := c.end(syscall.SIGTERM); err != nil {
		errs = append(errs, err)
	} else if exitCode != 0 {
		errs = append(errs, fmt.Errorf("the playground ended with exit code %d; its output ends with:\n%s",
			exitCode, c.Tail(20)))
	}
	// It has removed its directory, unless it failed; then its output was shown.
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}
