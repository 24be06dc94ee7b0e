package naming

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestShell runs the shell command that the documentation has for node names with dots.
func TestShell(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/behaviour.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "| a shell | `")
	address, _, found := strings.Cut(rest, "` |")
	if !found {
		t.Fatal("behaviour.md has no shell command")
	}
	address = strings.ReplaceAll(address, `\|`, "|") // as in every table
	for _, node := range []string{"ip-10-0-0-3.ec2.internal", "a.b", "k8s02"} {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", "echo "+address)
		cmd.Env = append(os.Environ(), "NODE="+node)
		got, err := cmd.CombinedOutput()
		if want := "http://" + ServiceName("cache", node) + "\n"; err != nil || string(got) != want {
			t.Errorf("%s: the shell says %q, %v; want %q", node, got, err, want)
		}
	}
}
