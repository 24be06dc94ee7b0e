package diagnose

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// DNSResult says, in a word for scripts, what the cluster's DNS answers for a name.
type DNSResult string

// The results. `kubectl localservice nodes -h` says what each of them means.
const (
	DNSAnswers        DNSResult = "Answers"
	DNSEmpty          DNSResult = "Empty"
	DNSUnknown        DNSResult = "Unknown"
	DNSOtherNode      DNSResult = "OtherNode"
	DNSOtherAddresses DNSResult = "OtherAddresses"
	DNSNoAnswer       DNSResult = "NoAnswer"
)

// DNSServer describes the server that was asked for the names, as <namespace>/<name>.
type DNSServer struct {
	Service string `json:"service"`
	Pod     string `json:"pod"`
}

// DNSAnswer holds what the server answers for a name, and whether that is right.
type DNSAnswer struct {
	Result    DNSResult `json:"result"`
	Addresses []string  `json:"addresses"` // sorted
	Message   string    `json:"message"`   // what is wrong, "" if nothing is
}

// DNSReply holds what a server says when it is asked for the addresses of a name.
type DNSReply struct {
	Addresses []string // none if the server does not know the name, or has no address for it
	Truncated bool     // There are more addresses than an answer has room for.
	Code      string   // such as NXDOMAIN; of several answers, that of one that is not NOERROR
	Failure   string   // why there is no answer; "" if there is
}

// AddDNS adds to a list the replies of a DNS server, by DNSName, compared with what they should be.
func AddDNS(list *NodeList, server DNSServer, replies map[string]*DNSReply) {
	list.DNS = &server
	nodesOf := map[string][]string{} // by address
	for _, n := range list.Items {
		for _, address := range slices.Concat(n.DNSAddresses, n.Addresses) {
			nodesOf[address] = append(nodesOf[address], n.Node)
		}
	}
	for _, n := range list.Items {
		if reply := replies[n.DNSName]; reply != nil {
			n.DNS = n.compareDNS(reply, nodesOf)
		}
	}
}

// compareDNS compares a reply with the addresses that the name should have.
func (n *Node) compareDNS(reply *DNSReply, nodesOf map[string][]string) *DNSAnswer {
	got, want := sets.New(reply.Addresses...), sets.New(n.DNSAddresses...)
	a, unexpected := &DNSAnswer{Addresses: sets.List(got)}, sets.List(got.Difference(want))
	var others []string // of another node
	for _, address := range unexpected {
		if nodes := nodesOf[address]; len(nodes) > 0 && !slices.Contains(nodes, n.Node) {
			others = append(others, address+" of "+nodes[0])
		}
	}
	switch {
	case reply.Failure != "":
		a.Result, a.Message = DNSNoAnswer, "no answer from DNS, "+reply.Failure
	case reply.Code != "NOERROR" && reply.Code != "NXDOMAIN": // The name has these addresses, or does not exist.
		a.Result, a.Message = DNSNoAnswer, "no answer from DNS, the server says "+reply.Code
	case len(a.Addresses) == 0 && len(n.DNSAddresses) == 0:
		a.Result = DNSEmpty
	case len(a.Addresses) == 0:
		a.Result, a.Message = DNSUnknown, "unknown to DNS, which should answer "+first(n.DNSAddresses)
	case len(others) > 0:
		a.Result, a.Message = DNSOtherNode, "DNS answers with addresses of another node: "+first(others)
	case len(unexpected) > 0 || !got.IsSuperset(want) && !reply.Truncated:
		a.Result = DNSOtherAddresses
		a.Message = "DNS answers " + first(a.Addresses) + ", and should answer " + cmp.Or(first(n.DNSAddresses), "nothing")
	default:
		a.Result = DNSAnswers
	}
	return a
}
