package suite

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	e2enode "k8s.io/kubernetes/test/e2e/framework/node"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	e2etestingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"
)

var resultsFile = flag.String("results", "", "file to append a line of JSON to when a test has ended")

// TestMain reads the flags that Kubernetes' own program of these tests has.
func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(e2etestingmanifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestSuite(t *testing.T) {
	gomega.RegisterFailHandler(framework.Fail)
	// Only now: before the tests run, the framework lists them, and ginkgo then forgets what was to report each.
	ginkgo.ReportAfterEach(writeResult)
	suiteConfig, reporterConfig := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "Kubernetes", suiteConfig, reporterConfig)
}

// Each process of a parallel run finds out what the tests want to know of the cluster.
var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err)
	nodes, err := e2enode.GetReadySchedulableNodes(ctx, client)
	framework.ExpectNoError(err)
	framework.TestContext.CloudConfig.NumNodes = len(nodes.Items)
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	framework.ExpectNoError(err)
	framework.TestContext.IPFamily = "ipv4"
	if service.Spec.IPFamilies[0] == "IPv6" {
		framework.TestContext.IPFamily = "ipv6"
	}
})

// Result is what became of a test.
type Result struct {
	Name    string
	State   string
	Seconds float64
	Message string // why, unless it passed
}

// writeResult appends the result of a test to the file. The processes of a parallel run share the file, and write each
// line in one piece.
func writeResult(report ginkgo.SpecReport) {
	leftOut := report.State.Is(types.SpecStateSkipped|types.SpecStatePending) && report.Failure.Message == ""
	if *resultsFile == "" || leftOut {
		return
	}
	message := report.Failure.Message
	if message != "" {
		message += "\n" + report.Failure.Location.String()
	}
	line, err := json.Marshal(Result{
		Name: report.FullText(), State: report.State.String(), Seconds: report.RunTime.Seconds(), Message: message,
	})
	framework.ExpectNoError(err)
	file, err := os.OpenFile(*resultsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	framework.ExpectNoError(err)
	_, err = file.Write(append(line, '\n'))
	framework.ExpectNoError(err)
	framework.ExpectNoError(file.Close())
}
