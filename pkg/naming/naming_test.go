package naming

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

var (
	node63  = strings.Repeat("n", 63)
	node253 = strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c",
		63) + "." + strings.Repeat("d", 61)
	name52 = strings.Repeat("s", MaxLocalServiceLength)
)

// TestNamesGolden holds the names of a release: clients compute them, so no change of the code may change one.
func TestNamesGolden(t *testing.T) {
	for _, c := range []struct{ localService, node, service, label string }{
		{"demo", "node2", "demo-node2", "node2"},
		{"localservice-app", "k8s03", "localservice-app-k8s03", "k8s03"},
		{"a", "b-c", "a-b-c", "b-c"},
		{"a-b", "c", "a-b-c", "c"}, // The first owner keeps a-b-c; the other LocalService reports a conflict.
		{"demo", "1", "demo-1", "1"},
		{"cache", "ip-10-0-0-3.ec2.internal", "cache-ip-10-0-0-3-ec2-internal", "ip-10-0-0-3.ec2.internal"},
		{"cache", "ip-10-0-0-3-ec2.internal", "cache-ip-10-0-0-3-ec2-internal", "ip-10-0-0-3-ec2.internal"},
		{"cache", "worker-0.cluster.example.com", "cache-worker-0-cluster-example-com",
			"worker-0.cluster.example.com"},
		{"x", strings.Repeat("n", 61), "x-" + strings.Repeat("n", 61), strings.Repeat("n", 61)},
		{"x", strings.Repeat("n", 62), "x-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn-rdn2nwpnq7",
			strings.Repeat("n", 62)},
		{"demo", node63, "demo-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn-opoptfsboi", node63},
		{"demo", node63 + "n", "demo-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn-zydiugk2wo",
			"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn-zydiugk2wo"},
		{"demo", node253, "demo-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-l7hqmxnvtq",
			"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-l7hqmxnvtq"},
		{"demo", "rack1.row2." + node253, "demo-rack1-row2-" + strings.Repeat("a", 36) + "-6ygc2pb7ap",
			"rack1.row2." + strings.Repeat("a", 41) + "-6ygc2pb7ap"},
		{name52, "k8s03", name52 + "-k8s03", "k8s03"},
		{name52, node63, "ssssssssssssssssssssssssssssssssssssssssssssssssssss-opoptfsboi", node63},
	} {
		if got := ServiceName(c.localService, c.node); got != c.service {
			t.Errorf("ServiceName(%q, %q) = %q, want %q", c.localService, c.node, got, c.service)
		}
		if got := NodeLabelValue(c.node); got != c.label {
			t.Errorf("NodeLabelValue(%q) = %q, want %q", c.node, got, c.label)
		}
	}
}

// TestHostnamesGolden holds the hostnames of a release, of nodes and of values of labels.
func TestHostnamesGolden(t *testing.T) {
	capitals := "A" + strings.Repeat("_B", 31)
	for of, want := range map[string]string{
		"k8s03":                    "k8s03",
		"1":                        "1",
		"ip-10-0-0-3.ec2.internal": "ip-10-0-0-3-ec2-internal",
		node63:                     node63,
		node63 + "n":               "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn-zydiugk2wo",
		"eu-west-1a":               "eu-west-1a",
		"westeurope_1":             "westeurope-1",
		"NVIDIA-H100-80GB-HBM3":    "nvidia-h100-80gb-hbm3",
		"p5.48xlarge":              "p5-48xlarge",
		"BM.GPU.H100.8":            "bm-gpu-h100-8",
		"Standard_ND96isr_H100_v5": "standard-nd96isr-h100-v5",
		"a..b__c":                  "a--b--c",
		capitals:                   "a" + strings.Repeat("-b", 31),
		"-":                        "hfz6aixjgi", // Nothing can be called so.
	} {
		if got := Hostname(of); got != want {
			t.Errorf("Hostname(%q) = %q, want %q", of, got, want)
		}
	}
}

// FuzzHostname: for every input, the hostname is a DNS label, which is its own hostname, and that of a value of a label
// has the same characters, in lower case, with dashes for dots and underscores.
func FuzzHostname(f *testing.F) {
	for _, of := range []string{"", "-", "A_b", "a.B", "NVIDIA-H100-80GB-HBM3", node63, node253, "ä", "a b"} {
		f.Add(of)
	}
	f.Fuzz(func(t *testing.T, of string) {
		got := Hostname(of)
		if errs := validation.IsDNS1123Label(got); len(errs) > 0 {
			t.Fatalf("Hostname(%q) = %q: %v", of, got, errs)
		}
		if again := Hostname(got); again != got {
			t.Fatalf("Hostname(%q) = %q", got, again)
		}
		if of == "" || len(validation.IsValidLabelValue(of)) > 0 {
			return
		}
		if len(got) != len(of) {
			t.Fatalf("Hostname(%q) = %q", of, got)
		}
		for i := range of {
			if is := of[i : i+1]; got[i:i+1] != strings.ToLower(is) && (got[i] != '-' || is != "." && is != "_") {
				t.Fatalf("Hostname(%q) = %q, which has %c for %s", of, got, got[i], is)
			}
		}
	})
}

// FuzzServiceName: for every input, the name is valid, and two nodes or two LocalServices share one only if the plain
// form <localService>-<node>, in lower case with dashes, is ambiguous.
func FuzzServiceName(f *testing.F) {
	f.Add("demo", "z9", "demo", "z-9")
	f.Add("a", "b-c", "a-b", "c")
	f.Add("demo", "a.b", "demo", "a-b")
	f.Add("", "", "-", ".")
	f.Add("1", "Node_1", "x1", "node-1")
	f.Add("demo", node253, "demo", node253+".x")
	f.Add(name52, node63, name52+"s", node63)
	f.Fuzz(func(t *testing.T, ls1, node1, ls2, node2 string) {
		n1, n2 := ServiceName(ls1, node1), ServiceName(ls2, node2)
		for _, n := range []string{n1, n2} {
			if errs := validation.IsDNS1035Label(n); len(errs) > 0 {
				t.Fatalf("ServiceName returned %q: %v", n, errs)
			}
		}
		plain1, plain2 := plain(ls1, node1), plain(ls2, node2)
		if n1 == n2 && (ls1 != ls2 || node1 != node2) && plain1 != plain2 && (n1 != plain1 || n2 != plain2) &&
			!(node1 == node2 && n1 != plain1 && n2 != plain2) {
			t.Fatalf("(%q, %q) and (%q, %q) share the name %q", ls1, node1, ls2, node2, n1)
		}
		if n := ServiceName(ls1, node2); node1 != node2 && n == n1 && plain(ls1, node1) != plain(ls1, node2) {
			t.Fatalf("the nodes %q and %q share the name %q", node1, node2, n)
		}
		if len(validation.IsDNS1035Label(plain1)) == 0 && n1 != plain1 {
			t.Fatalf("ServiceName(%q, %q) = %q, want the plain form", ls1, node1, n1)
		}
	})
}

func plain(localService, node string) string {
	return localService + "-" + strings.NewReplacer(".", "-", "_", "-").Replace(strings.ToLower(node))
}
