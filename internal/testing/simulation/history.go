package simulation

import (
	"bufio"
	"cmp"
	"fmt"
	"strings"
	"time"
)

// History is what happens in a world: how it begins, and what is done in it, step by step.
type History struct {
	// Seed is the seed of latencies.
	Seed uint64
	// Replicas is how many replicas of the controllers there are: 1, or 2 that elect a leader.
	Replicas int
	// Nodes is how many of the nodes exist at the beginning.
	Nodes int
	// Addresses is how many cluster IPs there are, and as many node ports.
	Addresses int
	// Streamed is false for an API server before Kubernetes 1.34, where caches are filled by lists.
	Streamed bool
	Steps    []Step
}

// Step is one thing that happens.
type Step struct {
	// After is how long nothing happens before.
	After time.Duration
	// Do is what happens, on what, and how. See actions.
	Do, On, How string
	// For is how long it lasts, 0 for what has no end of its own.
	For time.Duration
}

const none = "-"

func (s Step) String() string {
	text := fmt.Sprintf("%-7s %-10s %-28s %s", "+"+s.After.String(), s.Do, cmp.Or(s.On, none), cmp.Or(s.How, none))
	if s.For > 0 {
		text += " for " + s.For.String()
	}
	return strings.TrimRight(strings.TrimSuffix(text, " "+none), " ")
}

// String returns the form in which histories are stored: a line for how the world begins, and one for each step.
func (h *History) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "world seed=%d replicas=%d nodes=%d addresses=%d streamed=%t\n", h.Seed, h.Replicas, h.Nodes,
		h.Addresses, h.Streamed)
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
			_, err = fmt.Sscanf(line, "world seed=%d replicas=%d nodes=%d addresses=%d streamed=%t", &h.Seed,
				&h.Replicas, &h.Nodes, &h.Addresses, &h.Streamed)
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
	line, duration, hasEnd := strings.Cut(line, " for ")
	words := strings.Fields(line)
	if len(words) < 2 || len(words) > 4 {
		return fmt.Errorf("a step is: +AFTER DO ON HOW for DURATION")
	}
	words = append(words, none, none)
	s := Step{Do: words[1], On: strings.TrimPrefix(words[2], none), How: strings.TrimPrefix(words[3], none)}
	var err error
	if s.After, err = time.ParseDuration(strings.TrimPrefix(words[0], "+")); err != nil {
		return err
	}
	if hasEnd {
		if s.For, err = time.ParseDuration(duration); err != nil {
			return err
		}
	}
	h.Steps = append(h.Steps, s)
	return nil
}
