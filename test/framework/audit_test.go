package framework

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

const auditLines = `{"verb":"create","userAgent":"local-service-controller/v1","objectRef":{"resource":"services","namespace":"a"},` +
	`"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-01T00:00:01.000000Z","stageTimestamp":"2026-01-01T00:00:01.250000Z"}
{"verb":"patch","userAgent":"local-service-controller/v1","objectRef":{"resource":"localservices","subresource":"status","namespace":"a"},` +
	`"responseStatus":{"code":409},"requestReceivedTimestamp":"2026-01-01T00:00:02.000000Z","stageTimestamp":"2026-01-01T00:00:02.500000Z"}
{"verb":"get","requestURI":"/readyz","userAgent":"kubectl/v1"}
{"verb":"update","userAgent":"local-service-controller/v1","objectRef":{"resource":"leases","namespace":"a"}}
`

// TestAudit reads a log that grows, while its last line is still being written.
func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(auditLines+`{"verb":"li`), 0o600); err != nil {
		t.Fatal(err)
	}
	audit := &Audit{path: path}
	all := audit.Since(0)
	writes := all.ByController().Namespace("a").Writes()
	if got, want := writes.String(), "1 create services 201, 1 patch localservices/status 409"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if got := writes.Where(Failed).String(); got != "1 patch localservices/status 409" {
		t.Errorf("those that failed: %s", got)
	}
	if span := writes.Last().Sub(writes.First()); span != 1500*time.Millisecond {
		t.Errorf("they took %v; want 1.5s", span)
	}
	if got := all.By("kubectl/").String(); got != "1 get  0" {
		t.Errorf("those of kubectl: %q", got)
	}
	mark := audit.Mark()
	if err := os.WriteFile(path, []byte(auditLines+`{"verb":"list","objectRef":{"resource":"pods"}}`+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got := audit.Since(mark).String(); got != "1 list pods 0" {
		t.Errorf("since the mark: %s", got)
	}
}
