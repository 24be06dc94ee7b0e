package integration

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

func TestStatusKubectl(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared, "kubectl")
	s.AddNodes("a", "b")
	s.CreateReady("demo")

	t.Run("wait", func(t *testing.T) {
		s.in(t).MustKubectl("wait", "--for=condition=Ready", "--timeout=2m", "localservice/demo")
	})
	t.Run("get", func(t *testing.T) {
		s := s.in(t)
		for _, resource := range []string{"lsvc", "localservice", "localservices", "localservices.localservice.dev"} {
			wantTable(t, s.MustKubectl("get", resource),
				`NAME +NODES +ANSWERING +STATUS +AGE`,
				`demo +2 +0/2 +NoPodsReady +[0-9ms]+`)
		}
		wantTable(t, s.MustKubectl("get", "lsvc", "-o", "wide"),
			`NAME +NODES +ANSWERING +STATUS +MODE +SERVICES +AGE`,
			`demo +2 +0/2 +NoPodsReady +Services +2 +[0-9ms]+`)
	})
	t.Run("get all", func(t *testing.T) {
		out := s.in(t).MustKubectl("get", "all")
		for _, want := range []string{"localservice.localservice.dev/demo", "service/demo-" + s.NodeName("a")} {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl get all does not show %s:\n%s", want, out)
			}
		}
	})
	t.Run("explain", func(t *testing.T) {
		s := s.in(t)
		out := s.MustKubectl("explain", "localservice.spec")
		for _, field := range apiFields(reflect.TypeFor[v1alpha1.LocalServiceSpec]()) {
			if strings.Contains(field, ".") {
				continue // They are explained with the ports.
			}
			if !regexp.MustCompile(`(?m)^  ` + field + `\t<.+>.*\n(  enum: .*\n)?    \S`).MatchString(out) {
				t.Errorf("kubectl explain does not explain spec.%s:\n%s", field, out)
			}
		}
		if out := s.MustKubectl("explain", "lsvc.spec.ports.nodePort"); !strings.Contains(out, "cannot be set") {
			t.Errorf("kubectl explain does not say that nodePort cannot be set:\n%s", out)
		}
	})
}

// wantTable fails unless a table has these lines, which are regular expressions.
func wantTable(t *testing.T, table string, lines ...string) {
	t.Helper()
	if !regexp.MustCompile(`^` + strings.Join(lines, ` *\n`) + ` *\n$`).MatchString(table) {
		t.Errorf("the table\n%s is not\n%s", table, strings.Join(lines, "\n"))
	}
}
