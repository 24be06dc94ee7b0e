package simulation

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// History describes what happens in a world: how it begins, and what is done in it, step by step.
type History struct {
	// Seed is the seed of latencies.
	Seed uint64
	// Replicas is how many replicas of the controllers there are: 1, or 2 that elect a leader.
	Replicas int
	// Nodes is how many of the nodes exist at the beginning.
	Nodes int
	// Addresses is how many cluster IPs there are, and as many node ports.
	Addresses int
	// Distance is how much longer each request takes, and how late watches are, than near the API server.
	Distance time.Duration
	Steps    []Step
}

// Step is one thing that happens.
type Step struct {
	// After is how long nothing happens before.
	After time.Duration
	// Do says what happens, on what, and how. See actions.
	Do, On, How string
	// For is how long it lasts, 0 for what has no end of its own.
	For time.Duration
}

const none = "-"

func (s Step) String() string {
	return fmt.Sprintf("%-7s %-14s %-20s %-20s %s", "+"+s.After.String(), s.Do, cmp.Or(s.On, none), cmp.Or(s.How, none),
		s.For)
}

const worldLine = "world seed=%d replicas=%d nodes=%d addresses=%d distance=%s"

// String returns the form in which histories are stored: a line for how the world begins, and one for each step.
func (h *History) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, worldLine+"\n", h.Seed, h.Replicas, h.Nodes, h.Addresses, h.Distance)
	for _, s := range h.Steps {
		fmt.Fprintln(&out, s)
	}
	return out.String()
}

// Parse reads a history in the form of String. Lines that begin with # are comments.
func Parse(text string) (*History, error) {
	h := &History{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		var err error
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "world "):
			var distance string
			_, err1 := fmt.Sscanf(line, worldLine, &h.Seed, &h.Replicas, &h.Nodes, &h.Addresses, &distance)
			h.Distance, err = time.ParseDuration(distance)
			err = errors.Join(err1, err)
		default:
			err = h.parseStep(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
	}
	return h, lines.Err()
}

func (h *History) parseStep(line string) error {
	words := strings.Fields(line)
	if len(words) != 5 {
		return errors.New("a step is: +AFTER DO ON HOW FOR")
	}
	after, err1 := time.ParseDuration(words[0])
	during, err2 := time.ParseDuration(words[4])
	h.Steps = append(h.Steps, Step{After: after, Do: words[1], On: strings.TrimPrefix(words[2], none),
		How: strings.TrimPrefix(words[3], none), For: during})
	return errors.Join(err1, err2)
}
