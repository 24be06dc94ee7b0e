package externaldns

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// server is a DNS server for one zone, on loopback. It takes updates (RFC 2136) and transfers (RFC 5936), which is how
// external-dns talks to servers such as BIND.
type server struct {
	zone string
	port int

	mu      sync.Mutex
	records []dns.RR
}

// startServer starts a server that ends with the test.
func startServer(t *testing.T, zone string) *server {
	t.Helper()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{zone: dns.Fqdn(zone), port: tcp.Addr().(*net.TCPAddr).Port}
	udp, err := net.ListenPacket("udp4", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// Only queries and notifications are let through by default.
	all := func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }
	for _, d := range []*dns.Server{
		{Listener: tcp, Handler: s, MsgAcceptFunc: all}, {PacketConn: udp, Handler: s, MsgAcceptFunc: all},
	} {
		ended := make(chan error, 1)
		started := make(chan struct{})
		d.NotifyStartedFunc = func() { close(started) }
		go func() { ended <- d.ActivateAndServe() }()
		<-started
		t.Cleanup(func() {
			if err := d.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	return s
}

// ServeDNS answers an update or a transfer.
func (s *server) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := new(dns.Msg).SetReply(request)
	switch {
	case request.Opcode == dns.OpcodeUpdate:
		for _, change := range request.Ns {
			s.update(change)
		}
	case len(request.Question) == 1 && request.Question[0].Qtype == dns.TypeAXFR:
		soa := &dns.SOA{Hdr: dns.RR_Header{Name: s.zone, Rrtype: dns.TypeSOA, Class: dns.ClassINET},
			Ns: s.zone, Mbox: s.zone}
		answer.Answer = append(append([]dns.RR{soa}, s.records...), soa)
	default:
		answer.Rcode = dns.RcodeNotImplemented
	}
	_ = w.WriteMsg(answer) // Whoever has gone asks again.
}

// update makes one change, as RFC 2136 has it: the class says what is to be done with the record.
func (s *server) update(change dns.RR) {
	header := *change.Header()
	kept := s.records[:0:0]
	for _, record := range s.records {
		h := record.Header()
		same := strings.EqualFold(h.Name, header.Name)
		switch header.Class {
		case dns.ClassANY: // all records of the name, or those of one type
			same = same && (header.Rrtype == dns.TypeANY || header.Rrtype == h.Rrtype)
		default: // this record
			plain := dns.Copy(change)
			plain.Header().Class = dns.ClassINET
			same = same && dns.IsDuplicate(record, plain)
		}
		if !same {
			kept = append(kept, record)
		}
	}
	if header.Class == dns.ClassINET {
		kept = append(kept, change)
	}
	s.records = kept
}

// addresses are the A records of the zone, by name without the dot at the end.
func (s *server) addresses() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]string{}
	for _, record := range s.records {
		if a, ok := record.(*dns.A); ok {
			name := strings.TrimSuffix(a.Hdr.Name, ".")
			found[name] = strings.TrimPrefix(found[name]+" "+a.A.String(), " ")
		}
	}
	return found
}
