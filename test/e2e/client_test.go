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

// clientCommand makes the test binary a client, so that it can ask from inside a node's network: curl and dig may not
// be there, and are slow to ask a hundred times.
const clientCommand = "e2e-client"

// clientTimeout bounds what a client does. A name that is not there, and a port that nobody listens on, are answers
// that come at once.
const clientTimeout = 5 * time.Second

// question is an HTTP request that is made several times, on a connection of its own each time.
type question struct {
	URL string
	// Times is how often to ask. With 0, each address that the URL's name resolves to is asked once.
	Times int
}

// reply is what became of a question.
type reply struct {
	// Bodies are the answers.
	Bodies []string
	// Error is why there are not more of them.
	Error string
}

// client answers the questions on its input on its output, both as JSON.
func client(in io.Reader, out io.Writer) (exitCode int) {
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	var questions []question
	if err := json.NewDecoder(in).Decode(&questions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	replies := make([]reply, len(questions))
	var asking sync.WaitGroup
	for i, q := range questions {
		asking.Go(func() {
			var err error
			if replies[i].Bodies, err = q.ask(ctx); err != nil {
				replies[i].Error = err.Error()
			}
		})
	}
	asking.Wait()
	if err := json.NewEncoder(out).Encode(replies); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (q question) ask(ctx context.Context) ([]string, error) {
	to, err := url.Parse(q.URL)
	if err != nil {
		return nil, err
	}
	resolver := &net.Resolver{PreferGo: true}
	var addresses []string
	if q.Times == 0 {
		found, err := resolver.LookupHost(ctx, to.Hostname())
		if err != nil {
			return nil, err
		}
		for _, a := range found {
			addresses = append(addresses, net.JoinHostPort(a, to.Port()))
		}
	}
	for range q.Times {
		addresses = append(addresses, to.Host)
	}
	transport := &http.Transport{
		DialContext:       (&net.Dialer{Resolver: resolver}).DialContext,
		DisableKeepAlives: true,
	}
	var bodies []string
	var firstErr error
	for _, address := range addresses {
		at := *to
		at.Host = address
		if body, err := get(ctx, transport, at.String()); err == nil {
			bodies = append(bodies, body)
		} else if firstErr == nil {
			firstErr = err // The others are most likely the same.
		}
	}
	return bodies, firstErr
}

func get(ctx context.Context, transport http.RoundTripper, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// clients bounds the clients that run at a time: each is a process, and the machine may have few processors.
var clients = make(chan struct{}, 2)

// ask has questions asked from a node's network, with the cluster's DNS.
func ask(ctx context.Context, node string, questions []question) ([]reply, error) {
	select {
	case clients <- struct{}{}:
		defer func() { <-clients }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	in, err := json.Marshal(questions)
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

// answer is what the demo app says: which pod it is, and on which node.
type answer struct{ pod, node string }

// answerPattern is part of the contract, down to the two spaces.
var answerPattern = regexp.MustCompile(`^hello  this message from ([^/\s]+)/([^/\s]+)\n$`)

func parseAnswer(body string) (answer, error) {
	m := answerPattern.FindStringSubmatch(body)
	if m == nil {
		return answer{}, fmt.Errorf("the answer %q is not the demo app's", body)
	}
	return answer{pod: m[1], node: m[2]}, nil
}
