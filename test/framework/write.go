package framework

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// NewLocalService returns a headless LocalService for the nodes of the scene, with some changes.
func (s *Scene) NewLocalService(name string, changes ...Change) *v1alpha1.LocalService {
	forNodes := func(ls *v1alpha1.LocalService) { ls.Spec.NodeSelector = map[string]string{SceneLabel: s.Namespace} }
	return NewLocalService(s.Namespace, name, append([]Change{forNodes}, changes...)...)
}

// Create creates a LocalService.
func (s *Scene) Create(name string, changes ...Change) *v1alpha1.LocalService {
	s.T.Helper()
	strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	ls, err := s.LocalServiceClient().Create(s.Ctx(), s.NewLocalService(name, changes...), strict)
	s.Must(err)
	return ls
}

// CreateReady creates a LocalService and waits until it is ready.
func (s *Scene) CreateReady(name string, changes ...Change) *v1alpha1.LocalService {
	s.T.Helper()
	s.Create(name, changes...)
	return s.WaitReady(name)
}

// Update changes a LocalService, and tries again after a conflict. The machine may be busy, so it tries often: the
// tries of retry.DefaultBackoff would be over in a moment.
func (s *Scene) Update(name string, changes ...Change) {
	s.T.Helper()
	backoff := retry.DefaultBackoff
	backoff.Steps, backoff.Factor = 100, 1
	s.Must(retry.RetryOnConflict(backoff, func() error {
		ls, err := s.LocalServiceClient().Get(s.Ctx(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range changes {
			c(ls)
		}
		strict := metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}
		_, err = s.LocalServiceClient().Update(s.Ctx(), ls, strict)
		return err
	}))
}

// Apply creates the objects of a manifest.
func (s *Scene) Apply(manifest string) {
	s.T.Helper()
	_, _, err := s.Playground(s.Ctx(), []byte(manifest), "kubectl", "create", "-f", "-")
	s.Must(err)
}

// GetService returns the current state of a Service.
func (s *Scene) GetService(name string) *corev1.Service {
	s.T.Helper()
	service, err := s.ServiceClient().Get(s.Ctx(), name, metav1.GetOptions{})
	s.Must(err)
	return service
}

// CreateService creates a Service.
func (s *Scene) CreateService(service *corev1.Service) *corev1.Service {
	s.T.Helper()
	created, err := s.ServiceClient().Create(s.Ctx(), service, metav1.CreateOptions{})
	s.Must(err)
	return created
}

// CreatePod creates a pod that is scheduled to a node, unless that is "", with some changes.
func (s *Scene) CreatePod(name, node string, labels map[string]string, changes ...func(*corev1.Pod)) *corev1.Pod {
	s.T.Helper()
	return s.Launch(NewPod(name, node, labels, changes...))
}

// Launch creates a pod, as soon as the namespace allows it.
func (s *Scene) Launch(pod *corev1.Pod) *corev1.Pod {
	s.T.Helper()
	s.WaitServiceAccount()
	created, err := s.PodClient().Create(s.Ctx(), pod, metav1.CreateOptions{})
	s.Must(err)
	return created
}

// BindPod schedules a pod, as the scheduler does.
func (s *Scene) BindPod(name, node string, labels map[string]string) {
	s.T.Helper()
	s.Must(s.PodClient().Bind(s.Ctx(), NewBinding(name, node, labels), metav1.CreateOptions{}))
}

// PatchPod changes a pod with a JSON merge patch.
func (s *Scene) PatchPod(name, patch string, subresources ...string) {
	s.T.Helper()
	options := metav1.PatchOptions{FieldManager: "by-hand"}
	_, err := s.PodClient().Patch(s.Ctx(), name, types.MergePatchType, []byte(patch), options, subresources...)
	s.Must(err)
}

// GetPod returns the current state of a pod.
func (s *Scene) GetPod(name string) *corev1.Pod {
	s.T.Helper()
	pod, err := s.PodClient().Get(s.Ctx(), name, metav1.GetOptions{})
	s.Must(err)
	return pod
}
