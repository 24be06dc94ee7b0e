package diagnose

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompareDNS queries the name of n1, whose pods have the addresses 10.0.0.1 and 10.0.0.2. The pod of n2 has
// 10.0.0.3.
func TestCompareDNS(t *testing.T) {
	both := []string{"10.0.0.1", "10.0.0.2"}
	for name, c := range map[string]struct {
		expected []string
		reply    DNSReply
		want     DNSAnswer
	}{
		"as it should, in another order": {both, DNSReply{Addresses: []string{"10.0.0.2", "10.0.0.1"}},
			DNSAnswer{Result: DNSAnswers, Addresses: both}},
		"an address twice": {both, DNSReply{Addresses: []string{"10.0.0.2", "10.0.0.1", "10.0.0.2"}},
			DNSAnswer{Result: DNSAnswers, Addresses: both}},
		"no answer": {both, DNSReply{Failure: "late"}, DNSAnswer{Result: DNSNoAnswer,
			Message: "no answer from DNS, late"}},
		"not known": {both, DNSReply{Code: "NXDOMAIN"}, DNSAnswer{Result: DNSUnknown,
			Message: "unknown to DNS, which should answer 10.0.0.1, 10.0.0.2"}},
		"nothing to know": {nil, DNSReply{Code: "NXDOMAIN"}, DNSAnswer{Result: DNSEmpty}},
		"another node": {both, DNSReply{Addresses: []string{"10.0.0.1", "10.0.0.3"}}, DNSAnswer{Result: DNSOtherNode,
			Addresses: []string{"10.0.0.1", "10.0.0.3"},
			Message:   "DNS answers with addresses of another node: 10.0.0.3 of n2"}},
		"another node, for a name without pods": {nil, DNSReply{Addresses: []string{"10.0.0.3"}},
			DNSAnswer{Result: DNSOtherNode, Addresses: []string{"10.0.0.3"},
				Message: "DNS answers with addresses of another node: 10.0.0.3 of n2"}},
		"too few": {both, DNSReply{Addresses: both[:1]}, DNSAnswer{Result: DNSOtherAddresses, Addresses: both[:1],
			Message: "DNS answers 10.0.0.1, and should answer 10.0.0.1, 10.0.0.2"}},
		"too few, because there is no room": {both, DNSReply{Addresses: both[:1], Truncated: true},
			DNSAnswer{Result: DNSAnswers, Addresses: both[:1]}},
		"an old one": {nil, DNSReply{Addresses: []string{"10.0.0.9"}}, DNSAnswer{Result: DNSOtherAddresses,
			Addresses: []string{"10.0.0.9"}, Message: "DNS answers 10.0.0.9, and should answer nothing"}},
		"a cluster IP instead of pods": {both, DNSReply{Addresses: []string{"10.96.0.1"}, Truncated: true},
			DNSAnswer{Result: DNSOtherAddresses, Addresses: []string{"10.96.0.1"},
				Message: "DNS answers 10.96.0.1, and should answer 10.0.0.1, 10.0.0.2"}},
		"no answer for one of the families": {both, DNSReply{Addresses: both, Code: "SERVFAIL"},
			DNSAnswer{Result: DNSNoAnswer, Addresses: both, Message: "no answer from DNS, the server says SERVFAIL"}},
	} {
		t.Run(name, func(t *testing.T) {
			list := &NodeList{Items: []*Node{
				{Node: "n1", DNSName: "n1", DNSAddresses: c.expected, Addresses: both},
				{Node: "n2", DNSName: "n2", DNSAddresses: []string{"10.0.0.3"}},
			}}
			if c.reply.Code == "" {
				c.reply.Code = "NOERROR"
			}
			c.want.Addresses = append([]string{}, c.want.Addresses...) // never nil
			AddDNS(list, DNSServer{}, map[string]*DNSReply{"n1": &c.reply})
			if diff := cmp.Diff(&c.want, list.Items[0].DNS); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if list.Items[1].DNS != nil {
				t.Errorf("a name that was not queried has an answer: %+v", list.Items[1].DNS)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	for want, n := range map[string]Node{
		"":     {DNS: &DNSAnswer{}},
		"a":    {Finding: Finding{Message: "a"}},
		"b":    {DNS: &DNSAnswer{Message: "b"}},
		"a; b": {Finding: Finding{Message: "a"}, DNS: &DNSAnswer{Message: "b"}},
	} {
		if got := n.Problems(); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}

// TestManyAddresses: a message names only a few addresses.
func TestManyAddresses(t *testing.T) {
	n := Node{DNSAddresses: slices.Repeat([]string{"10.0.0.1"}, 4000)}
	if got := n.compareDNS(&DNSReply{Code: "NOERROR"}, nil).Message; !strings.HasSuffix(got, "10.0.0.1 and 3997 more") {
		t.Errorf("%.200s", got)
	}
}
