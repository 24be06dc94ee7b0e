package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestPreflight(t *testing.T) {
	denied := errors.New("operation not permitted")
	without := func(missing ...string) func(string) error {
		return func(program string) error {
			if slices.Contains(missing, program) {
				return errors.New("not found")
			}
			return nil
		}
	}
	sysctl := func(name, value string) func(string) string {
		return func(asked string) string {
			if asked == name {
				return value
			}
			return ""
		}
	}
	for name, tc := range map[string]struct {
		change   func(*probes)
		want     []string // all of these are in the error; no error if there are none
		packages []string
	}{
		"all is well": {change: func(*probes) {}},
		"not Linux":   {change: func(p *probes) { p.goos = "darwin" }, want: []string{"darwin"}},
		"a fresh Debian": {
			change:   func(p *probes) { p.lookPath = without("nft", "crun") },
			want:     []string{"nft is not installed", "crun is not installed", "sudo apt-get install -y nftables crun\n"},
			packages: []string{"nftables", "crun"},
		},
		"Ubuntu": {
			change: func(p *probes) {
				p.namespaces = func() error { return denied }
				p.sysctl = sysctl("kernel/apparmor_restrict_unprivileged_userns", "1")
			},
			want: []string{"AppArmor", "run the playground with sudo"},
		},
		"user namespaces switched off": {
			change: func(p *probes) {
				p.namespaces = func() error { return denied }
				p.sysctl = sysctl("user/max_user_namespaces", "0")
			},
			want: []string{"user.max_user_namespaces=10000"},
		},
		"user namespaces switched off in Debian's way": {
			change: func(p *probes) {
				p.namespaces = func() error { return denied }
				p.sysctl = sysctl("kernel/unprivileged_userns_clone", "0")
			},
			want: []string{"kernel.unprivileged_userns_clone=1"},
		},
		"root in a container": {
			change: func(p *probes) {
				p.root = true
				p.namespaces = func() error { return denied }
			},
			want: []string{"container"},
		},
		"many inotify instances in use": {
			change: func(p *probes) {
				p.inotify = func(int) int { return 12 }
				p.sysctl = sysctl("fs/inotify/max_user_instances", "128")
			},
			want: []string{"38 inotify instances are needed for 3 nodes, and only 12 are left of the 128", "sudo sysctl -w fs.inotify.max_user_instances="},
		},
		"not built": {
			change: func(p *probes) { p.libexecExists = func(name string) bool { return name != "runc" && name != "pause" } },
			want:   []string{"runc, pause", "hack/playground/build.sh"},
		},
		"everything at once": {
			change: func(p *probes) {
				p.lookPath = without("nft", "crun", "nsenter")
				p.namespaces = func() error { return denied }
				p.libexecExists = func(string) bool { return false }
			},
			want:     []string{"nft ", "crun ", "nsenter ", "namespaces", "containerd", "--control-plane-only"},
			packages: []string{"nftables", "crun", "util-linux"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := probes{
				goos:          "linux",
				sysctl:        func(string) string { return "" },
				lookPath:      without(),
				namespaces:    func() error { return nil },
				libexecExists: func(string) bool { return true },
				inotify:       func(n int) int { return n },
			}
			tc.change(&p)
			found := preflight(p, 3)
			if got := found.packages(); !slices.Equal(got, tc.packages) {
				t.Errorf("packages are %v, want %v", got, tc.packages)
			}
			err := found.err()
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("error is %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestCountInotify(t *testing.T) {
	if got := countInotify(3); got != 3 {
		t.Errorf("of 3 instances %d can be had", got)
	}
}
