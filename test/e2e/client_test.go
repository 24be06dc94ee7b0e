package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"sync"
	"time"
)

// clientCommand makes the test binary a client inside a node's network: curl and dig may not be installed, and are slow
// for a hundred requests.
const clientCommand = "e2e-client"

// clientTimeout bounds the requests of a client. For a name that does not exist, and a port without a listener, the
// answer arrives at once.
const clientTimeout = 5 * time.Second

// clientTries is how often a client requests each URL: often enough to use every address of its name, and to reach, by
// chance, every pod behind an address that several pods share.
const clientTries = 20

// reply has the answers to the requests of a URL.
type reply struct {
	// Addresses lists those of the name.
	Addresses []string
	// Bodies are the answers.
	Bodies []string
	// Error is the reason why there are no more of them.
	Error string
}

// client requests the URLs on its input and writes the replies to its output, both as JSON.
func client(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	var urls []string
	if err := json.NewDecoder(in).Decode(&urls); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(askAll(ctx, urls))
}

// askAll requests URLs at the same time.
func askAll(ctx context.Context, urls []string) []reply {
	replies := make([]reply, len(urls))
	var asking sync.WaitGroup
	for i, url := range urls {
		asking.Go(func() {
			if err := replies[i].ask(ctx, url); err != nil {
				replies[i].Error = err.Error()
			}
		})
	}
	asking.Wait()
	return replies
}

// ask requests a URL several times. It returns the first error: the others are most likely the same.
func (r *reply) ask(ctx context.Context, to string) (firstErr error) {
	v := visitor{url: to, cache: clientTimeout}
	for range clientTries {
		body, err := v.get(ctx)
		if r.Addresses = v.addresses; err == nil {
			r.Bodies = append(r.Bodies, body)
		} else if firstErr == nil {
			firstErr = err
		}
		if len(v.addresses) == 0 {
			break
		}
	}
	return firstErr
}

// visitor requests a URL at the addresses that its name had some time ago, in turn.
type visitor struct {
	url       string
	cache     time.Duration // for how long it keeps the addresses, as many resolvers do
	addresses []string
	resolved  time.Time
	requests  int
}

// get makes one request, on a connection of its own, without retries.
func (v *visitor) get(ctx context.Context) (string, error) {
	at, err := url.Parse(v.url)
	if err != nil {
		return "", err
	}
	if time.Since(v.resolved) > v.cache {
		if v.addresses, err = (&net.Resolver{PreferGo: true}).LookupHost(ctx, at.Hostname()); err != nil {
			return "", err
		}
		v.resolved = time.Now()
	}
	v.requests++
	at.Host = net.JoinHostPort(v.addresses[v.requests%len(v.addresses)], at.Port())
	return get(ctx, at.String())
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// clients limits concurrent clients: each is a process, and the machine may have few processors.
var clients = make(chan struct{}, 2)

// ask requests URLs from a node's network, with the cluster's DNS.
func ask(ctx context.Context, node string, urls []string) ([]reply, error) {
	select {
	case clients <- struct{}{}:
		defer func() { <-clients }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	in, err := json.Marshal(urls)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, _, err := cluster.Playground(ctx, in, "run", "--node", node, "--", self, clientCommand)
	if err != nil {
		return nil, err
	}
	var replies []reply
	if err := json.Unmarshal([]byte(out), &replies); err != nil {
		return nil, fmt.Errorf("the client on node %s: %w: %s", node, err, out)
	}
	return replies, nil
}

// answerPattern matches the answer of the demo app: its pod, and its node. It is part of the contract, down to the two
// spaces.
var answerPattern = regexp.MustCompile(`^hello  this message from ([^/\s]+)/([^/\s]+)\n$`)
