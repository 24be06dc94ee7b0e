package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// ticksPerSecond is the unit of CPU times in /proc, the same on all Linux architectures that Go knows.
	ticksPerSecond = 100
	// Memory has settled when it has not changed by more than settleTolerance for settleTime, or after settleTimeout:
	// the Go runtime gives back what a start has left over within a minute or so.
	settleTime      = 10 * time.Second
	settleTimeout   = 60 * time.Second
	settleTolerance = 0.01
)

// cpu is the CPU time that the process has used so far.
func (p *controller) cpu() (time.Duration, error) { return cpuTime(p.cmd.Process.Pid) }

// cpuTime is the CPU time that a process has used so far.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read a process's CPU time: %w", err)
	}
	// The name, in parentheses, may hold anything. After it come the state (field 3), ..., utime (14) and stime (15).
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the controller's CPU time: unexpected %q", stat)
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("read the controller's CPU time: unexpected %q", stat)
	}
	return time.Duration(user+system) * time.Second / ticksPerSecond, nil
}

// memory is what the process has of the machine's memory, in bytes: now, at most so far, and now of its program file,
// which the kernel can take back at any time.
type memory struct{ resident, peak, program float64 }

func (m memory) String() string {
	return fmt.Sprintf("%.0f MB, %.0f MB of it the program file; peak %.0f MB", m.resident/1e6, m.program/1e6, m.peak/1e6)
}

var memoryLine = regexp.MustCompile(`(?m)^(VmRSS|VmHWM|RssFile):\s+(\d+) kB$`)

func (p *controller) memory() (m memory, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return m, fmt.Errorf("read the controller's memory: %w", err)
	}
	for _, line := range memoryLine.FindAllSubmatch(status, -1) {
		kilobytes, err := strconv.ParseFloat(string(line[2]), 64)
		if err != nil {
			return m, fmt.Errorf("read the controller's memory: %w", err)
		}
		switch string(line[1]) {
		case "VmRSS":
			m.resident = kilobytes * 1024
		case "VmHWM":
			m.peak = kilobytes * 1024
		case "RssFile":
			m.program = kilobytes * 1024
		}
	}
	return m, nil
}

// settledMemory waits until the memory of a process that rests does not change any more.
func (b *bench) settledMemory(ctx context.Context, p *controller) (memory, error) {
	began := time.Now()
	last, since := memory{}, began
	for {
		m, err := p.memory()
		if err != nil {
			return m, err
		}
		if math.Abs(m.resident-last.resident) > settleTolerance*last.resident {
			last, since = m, time.Now()
		}
		if time.Since(since) > b.shorter(settleTime) || time.Since(began) > b.shorter(settleTimeout) {
			return m, nil
		}
		if err := pause(ctx, time.Second/2); err != nil {
			return m, err
		}
	}
}

// usage is the CPU time that a process used during a piece of work.
func (p *controller) usage(work func() error) (time.Duration, error) {
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := p.cpu()
	return after - before, err
}

// pause waits for a time of measuring to pass.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// quantile is the smallest value that at least a fraction q of the values do not exceed.
func quantile[T float64 | time.Duration](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func median[T float64 | time.Duration](values []T) T { return quantile(values, 0.5) }
