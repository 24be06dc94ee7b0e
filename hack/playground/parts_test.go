package main

import (
	"slices"
	"strings"
	"testing"
)

func TestChildEnv(t *testing.T) {
	want := []string{"PATH=/bin", "GOMAXPROCS=2"}
	got := childEnv(append(want, "HTTPS_PROXY=http://proxy", "ETCD_NAME=x", "NOTIFY_SOCKET=/run/x", "KUBECONFIG=/k"))
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestClusterNsswitch(t *testing.T) {
	const others, hosts = "passwd: files systemd\n", "\nhosts: files dns\n"
	got := string(clusterNsswitch([]byte(others + "hosts:  files resolve [!UNAVAIL=return] dns\n")))
	if !strings.HasPrefix(got, others) || strings.Contains(got, "resolve") || !strings.HasSuffix(got, hosts) {
		t.Errorf("got %q", got)
	}
}
