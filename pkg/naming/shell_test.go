package naming

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestShell runs the shell commands that the documentation has for node names with dots.
func TestShell(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/behaviour.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```sh\n")
	script, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("behaviour.md has no shell commands")
	}
	for _, node := range []string{"ip-10-0-0-3.ec2.internal", "a.b", "node-1.us-west1-a.c.project.internal"} {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Env = append(os.Environ(), "LOCALSERVICE=cache", "NODE="+node)
		got, err := cmd.CombinedOutput()
		want := fmt.Sprintf("%s\n%s.cache\n", ServiceName("cache", node), Hostname(node))
		if err != nil || string(got) != want {
			t.Errorf("%s: the shell says %q, %v; want %q", node, got, err, want)
		}
	}
}
