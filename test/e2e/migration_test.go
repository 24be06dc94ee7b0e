package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/localservice-dev/local-service-controller/test/framework"
)

// What clients use before and after docs/migration.md: the host port at the address of each node, and the names of the
// nodes, in addition to the app's own Service.
var (
	hostPortURLs = map[string]string{}
	nameURLs     = map[string]string{"http://cache.default:8080/": ""}
)

func init() {
	for i, node := range nodes {
		hostPortURLs[fmt.Sprintf("http://192.168.60.%d:9080/", 11+i)] = node
		nameURLs[fmt.Sprintf("http://cache-%s.default:8080/", node)] = node
	}
}

// patient is an asker whose requests may not fail, although it uses addresses for long.
func patient(urls map[string]string) asker {
	return asker{Pause: 40 * time.Millisecond, Cache: 20 * time.Second, URLs: urls}
}

// migration follows docs/migration.md in the namespace default of the shared cluster, section by section.
type migration struct {
	*reader
	sections map[string][]step // by the words that their headings end with
}

func newMigration(t *testing.T) *migration {
	document, err := os.ReadFile(framework.ModuleFile("docs", "migration.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := &migration{newReader(t), map[string][]step{}}
	m.dir = cluster.Dir()
	m.env = append(m.env, "PLAYGROUND_DIR="+m.dir,
		"PATH="+filepath.Dir(framework.PluginProgram.MustPath(t))+":"+os.Getenv("PATH"))
	for _, st := range parseSteps(string(document), walkThrough) {
		m.sections[st.section] = append(m.sections[st.section], st)
	}
	t.Cleanup(func() {
		_, err := cluster.Kubectl(context.Background(), "delete", "--wait=false", "localservice/cache",
			"daemonset/cache",
			"service/cache", "deployment/client", "pod/host-network")
		if err != nil {
			t.Error(err)
		}
	})
	return m
}

// follow types the commands of some sections.
func (m *migration) follow(sections ...string) {
	m.t.Helper()
	for _, section := range sections {
		if len(m.sections[section]) == 0 {
			m.t.Fatalf("docs/migration.md has no section %q with commands", section)
		}
		for _, st := range m.sections[section] {
			if err := m.reader.follow(st); err != nil {
				m.t.Fatalf("docs/migration.md:%d: $ %s\n%v\n%s", st.line, st.command, err, cluster.Describe("default"))
			}
		}
	}
}

// TestMigration types the commands of docs/migration.md while clients send requests. None may fail: those to the host
// port until it is removed, those to the names from the moment when they exist to the end.
func TestMigration(t *testing.T) {
	t.Parallel()
	m := newMigration(t)
	m.follow("Host ports")
	stopPorts := startAsker(t, "the host port", nodes[1], patient(hostPortURLs))
	m.follow("1. Choose a name", "2. Give each node its name")
	for _, from := range nodes[:2] {
		startAsker(t, "the names", from, patient(nameURLs))
	}
	m.follow("3. Move the clients")
	stopPorts()
	const beside, stopOld = "5. Start pods without the host port beside the old ones", "6. Stop the old pods"
	m.follow("4. See that nobody uses the port any more")
	stopPorts = startAsker(t, "the host port, used after all", nodes[1], patient(hostPortURLs))
	m.follow(beside, "The way back before step 6", beside)
	stopPorts()
	m.follow(stopOld, "The way back after step 6")
	err := framework.Poll(t.Context(), func(ctx context.Context) error {
		out, err := cluster.Kubectl(ctx, "get", "pods", "--selector=app=cache", "--output=name")
		if pods := strings.Fields(out); err == nil && len(pods) != len(nodes) {
			err = fmt.Errorf("there are %v", pods)
		}
		return err
	})
	if err != nil {
		t.Fatalf("not so: the old pods are gone: %v", err)
	}
}
