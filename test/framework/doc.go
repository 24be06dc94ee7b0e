// Package framework runs the programs under test, and helps to look at what they do: a cluster (bin/playground), the
// controller (bin/local-service-controller), the API server's audit log, and conditions that come true eventually.
//
//	func TestMain(m *testing.M) {
//		framework.Main(m, func(ctx context.Context) (stop func() error, err error) {
//			cluster, err = framework.StartCluster(ctx, framework.ClusterOptions{ControlPlaneOnly: true})
//			...
//		})
//	}
//
//	func TestSomething(t *testing.T) {
//		cluster := framework.NewCluster(t, framework.ClusterOptions{Nodes: []string{"k8s01"}}) // stopped with the test
//		controller := cluster.NewController(t, "-leader-elect")                              // so is this
//		mark := cluster.Audit.Mark()
//		...
//		cluster.Eventually(t, namespace, "the Service exists", func(ctx context.Context) error { ... })
//		writes := cluster.Audit.Since(mark).ByController().Writes().Namespace(namespace)
//	}
//
// Nothing here waits for a time to pass: Eventually polls for a condition until a deadline, and prints the state of
// the cluster when it passes. Everything that is started ends with the test binary, also when that is killed.
//
// The programs are found in bin/ of the repository, or where $PLAYGROUND_BIN and $CONTROLLER_BIN say.
package framework
