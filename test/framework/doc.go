// Package framework is the harness of all tests that run programs, and of the benchmark. It alone starts clusters and
// processes (cluster.go, controller.go, process.go, binaries.go), reads the API server's audit log (audit.go), builds
// the objects of tests (objects.go), gives each test its own namespace (scene.go, write.go), and
// waits (wait.go, eventually.go).
//
//	func TestSomething(t *testing.T) {
//		cluster := framework.NewCluster(t, // stopped with the test
//			framework.ClusterOptions{Nodes: []string{"k8s01"}})
//		cluster.NewController(t, "-leader-elect") // so is this
//		s := cluster.NewScene(t, "something")     // a namespace and its nodes
//		nodes := s.AddNodes("a", "b")
//		s.CreateReady("demo", framework.WithClusterIP)
//		s.ResetCount()
//		s.DeleteNode(nodes[0])
//		s.WaitServiceGone("demo-" + nodes[0])
//		s.WantWrites("services", "1 delete services 200")
//	}
//
// Nothing here sleeps: all waits poll for a condition until DefaultTimeout, and print the state of the cluster when it
// passes. A test's own writes are retried after a conflict. Everything that is started ends with the test binary, even
// if that is killed.
//
// The programs are found in bin/ of the repository, or the controller where $CONTROLLER_BIN says.
package framework
