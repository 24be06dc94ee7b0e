package alerts

import (
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// TestAlerts makes every alert fire by its cause, runs the commands of its runbook, fixes the cause, and waits until
// the alert is resolved. The dashboard shows the results.
func TestAlerts(t *testing.T) {
	st := newStage(t)
	// Two controllers, as the chart installs them. The standby reaches the API server at an address of its own. Few
	// writes are in flight at a time, so that waits show. The Lease does not expire on a busy machine.
	proxy := st.NewProxy(t, st.MustControllerKubeconfig(t))
	flags := []string{"-leader-elect", "-leader-election-namespace=" + framework.ControllerNamespace,
		"-leader-election-lease-duration=60s", "-write-concurrency=4"}
	leader := st.NewController(t, flags...)
	standby := st.LaunchController(t, append(flags, "-kubeconfig="+proxy.Kubeconfig)...)
	st.prometheus.scrape(t, leader, standby)
	began := time.Now()
	s := st.newScene(t, "calm")
	s.everyday()
	s.calm()

	var fired []string
	run := func(t *testing.T, name string, test func(t *testing.T, s *scene)) {
		fired = append(fired, name)
		t.Run(name, func(t *testing.T) { test(t, st.newScene(t, "alert")) })
	}
	t.Run("objects", func(t *testing.T) {
		for name, test := range causes {
			run(t, name, func(t *testing.T, s *scene) {
				t.Parallel()
				cure := test.cause(s)
				s.fires(name, test.labels)
				s.follow(name)
				cure()
				s.goesOut(name, test.labels)
			})
		}
		run(t, "LocalServiceCacheStale", func(t *testing.T, s *scene) {
			t.Parallel()
			proxy.Block()
			s.fires("LocalServiceCacheStale", map[string]string{"resource": "nodes"})
			s.follow("LocalServiceCacheStale")
			proxy.Unblock()
			s.goesOut("LocalServiceCacheStale", nil)
		})
	})
	s.calm()
	st.checkDashboard(t, began)

	s.Must(standby.Stop())
	s.Must(leader.Stop())
	stop := func() {}
	run(t, "LocalServiceControllerDown", func(_ *testing.T, s *scene) {
		s.fires("LocalServiceControllerDown", nil)
		s.follow("LocalServiceControllerDown")
		stop = st.start("-kubeconfig="+st.Kubeconfig, "-workers=2", "-write-concurrency=4")
		s.goesOut("LocalServiceControllerDown", nil)
	})
	run(t, "LocalServiceQueueStuck", func(t *testing.T, s *scene) { s.stickQueue(st.newScene(t, "alert")) })
	stop()
	run(t, "LocalServiceControllerNotWorking", func(_ *testing.T, s *scene) {
		s.waitForPermissions()
		s.waitForLease()
	})

	var alerts []string
	known, err := st.prometheus.metrics(t.Context())
	s.Must(err)
	for _, rule := range readRules(t) {
		alerts = append(alerts, rule.Alert)
		for _, metric := range metricsOf(rule.Expr) {
			if !slices.Contains(known, metric) {
				t.Errorf("%s: the controller has no metric %s", rule.Alert, metric)
			}
		}
	}
	slices.Sort(alerts)
	slices.Sort(fired)
	if !slices.Equal(fired, alerts) {
		t.Errorf("the alerts that fire here are not those that there are:\n%v\n%v", fired, alerts)
	}
}

// stickQueue keeps each of two workers busy with a LocalService. The writes of a Service and then of the status take
// nearly as long as a write may: together longer than the shortened rule looks back. Another LocalService waits.
func (s *scene) stickQueue(other *scene) {
	s.T.Helper()
	const name, nodes, delay = "LocalServiceQueueStuck", 10, 25 * time.Second
	var cures []func()
	for _, busy := range []*scene{s, other} {
		busy.AddManyNodes(nodes)
		cures = append(cures, busy.slow("services", admissionregistrationv1.Create, delay),
			busy.slow("localservices/status."+v1alpha1.GroupName, admissionregistrationv1.Update, delay))
	}
	s.Create("demo")
	other.Create("demo")
	s.Create("waiting")
	other.Create("waiting")
	s.fires(name, map[string]string{"name": "localservice"})
	s.follow(name)
	for _, cure := range cures {
		cure()
	}
	s.goesOut(name, nil)
	s.WaitReady("waiting")
}

// waitForPermissions runs a controller without permissions, until they are granted.
func (s *scene) waitForPermissions() {
	s.T.Helper()
	const name = "LocalServiceControllerNotWorking"
	s.WaitServiceAccount()
	defer s.stage.start("-kubeconfig="+s.AccountKubeconfig(s.T, s.Namespace, "default"), "-leader-elect=false")()
	s.fires(name, nil)
	s.follow(name)
	_, err := s.Kube.RbacV1().ClusterRoleBindings().Create(s.Ctx(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.Namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "local-service-controller"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: "default"}},
	}, metav1.CreateOptions{})
	s.Must(err)
	s.goesOut(name, nil)
}

// waitForLease runs a controller while another client holds its Lease, until that is deleted.
func (s *scene) waitForLease() {
	s.T.Helper()
	const name = "LocalServiceControllerNotWorking"
	leases := s.Kube.CoordinationV1().Leases(s.Namespace)
	_, err := leases.Create(s.Ctx(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "local-service-controller"},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: new("somebody"), LeaseDurationSeconds: new(int32(3600)),
			AcquireTime: &metav1.MicroTime{Time: time.Now()}, RenewTime: &metav1.MicroTime{Time: time.Now()}},
	}, metav1.CreateOptions{})
	s.Must(err)
	defer s.stage.start("-kubeconfig="+s.Kubeconfig, "-leader-elect", "-leader-election-namespace="+s.Namespace)()
	s.fires(name, nil)
	s.follow(name)
	s.Must(leases.Delete(s.Ctx(), "local-service-controller", metav1.DeleteOptions{}))
	s.goesOut(name, nil)
}
