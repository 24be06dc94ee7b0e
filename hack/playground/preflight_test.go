package main

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestPreflight(t *testing.T) {
	for name, tc := range map[string]struct {
		root    bool
		missing []string // programs
		unbuilt []string
		inotify int
		denied  bool              // namespaces
		sysctl  map[string]string // by name
		want    []string          // all of these are in the error; no error if there are none
	}{
		"all is well": {},
		"a fresh Debian": {
			missing: []string{"nft", "crun"},
			want:    []string{"nft is not installed", "crun is not installed", "apt-get install -y nftables crun\n"},
		},
		"Ubuntu": {
			denied: true, sysctl: map[string]string{"kernel/apparmor_restrict_unprivileged_userns": "1"},
			want: []string{"AppArmor", "run the playground with sudo"},
		},
		"user namespaces switched off": {
			denied: true, sysctl: map[string]string{"user/max_user_namespaces": "0"},
			want: []string{"user.max_user_namespaces=10000"},
		},
		"user namespaces switched off in Debian's way": {
			denied: true, sysctl: map[string]string{"kernel/unprivileged_userns_clone": "0"},
			want: []string{"kernel.unprivileged_userns_clone=1"},
		},
		"root in a container": {denied: true, root: true, want: []string{"container"}},
		"many inotify instances in use": {
			inotify: 12, sysctl: map[string]string{"fs/inotify/max_user_instances": "128"},
			want: []string{"38 inotify instances are needed for 3 nodes, and only 12 are left of the 128",
				"sudo sysctl -w fs.inotify.max_user_instances="},
		},
		"not built": {unbuilt: []string{"runc", "pause"}, want: []string{"runc, pause", "hack/playground/build.sh"}},
		"everything at once": {
			missing: []string{"nft", "crun", "nsenter"}, unbuilt: libexecPrograms, denied: true,
			want: []string{"nft ", "crun ", "nsenter ", "nftables crun util-linux\n", "namespaces", "containerd",
				"--control-plane-only"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			onlyIf := func(ok bool) error {
				if ok {
					return nil
				}
				return errors.New("no")
			}
			found := preflight(probes{
				root:          tc.root,
				sysctl:        func(name string) string { return tc.sysctl[name] },
				lookPath:      func(program string) error { return onlyIf(!slices.Contains(tc.missing, program)) },
				namespaces:    func() error { return onlyIf(!tc.denied) },
				libexecExists: func(name string) bool { return !slices.Contains(tc.unbuilt, name) },
				inotify:       func(n int) int { return cmp.Or(tc.inotify, n) },
			}, 3)
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
