package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

const (
	admissionRounds  = 3 // of each, without and with the policies by turns
	admissionNodes   = 200
	admissionPods    = 3000
	admissionTimeout = 20 * time.Minute
	policyTimeout    = time.Minute
	// No client-side limit: the scheduler's own, 50 requests/s, would hide what is measured.
	schedulerQPS = "10000"
)

// measureAdmission measures row 10: what the policies of artifacts/admission cost the API server, and the scheduler.
// Everything is done without and with them by turns.
func (b *bench) measureAdmission(ctx context.Context) error {
	return b.withCluster(ctx, func(c *cluster) error {
		ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
		defer cancel()
		s, err := b.newScene(ctx, c, b.n(admissionNodes))
		if err != nil {
			return err
		}
		if err := s.roomyNodes(ctx); err != nil {
			return err
		}
		for _, m := range []struct {
			what string
			span func(ctx context.Context, app string, n int) (time.Duration, error)
		}{
			{"pods bound by bare clients", s.bindOnce},
			{"pods scheduled by kube-scheduler", s.scheduleOnce},
			{"status updates of labelled pods", s.updateStatusOnce},
			{"pods created", s.createOnce},
		} {
			if err := b.compareAdmission(ctx, s, m.what, m.span); err != nil {
				return fmt.Errorf("%s: %w", m.what, err)
			}
		}
		return nil
	})
}

func (b *bench) compareAdmission(ctx context.Context, s *scene, what string, span func(ctx context.Context, app string, n int) (time.Duration, error)) error {
	n := b.n(admissionPods)
	pid, err := s.apiServer()
	if err != nil {
		return err
	}
	var off, on, ratios, cpuOff, cpuOn []float64
	measured := func(cpu *[]float64) (elapsed time.Duration, err error) {
		before, err1 := cpuTime(pid)
		elapsed, err = span(ctx, s.nextApp(), n)
		after, err2 := cpuTime(pid)
		*cpu = append(*cpu, (after-before).Seconds()*1e6/float64(n))
		return elapsed, errors.Join(err1, err, err2)
	}
	for range b.rounds(admissionRounds) {
		without, err := measured(&cpuOff)
		if err != nil {
			return err
		}
		if err := s.installPolicies(ctx); err != nil {
			return err
		}
		with, err := measured(&cpuOn)
		if err = errors.Join(err, s.removePolicies(ctx)); err != nil {
			return err
		}
		progress("row 10: %d %s: without %v, with %v; CPU of the API server for each %.0f and %.0f µs", n, what, without, with, cpuOff[len(cpuOff)-1], cpuOn[len(cpuOn)-1])
		off, on, ratios = append(off, without.Seconds()), append(on, with.Seconds()), append(ratios, ratio(with, without))
	}
	b.report.add(check{Row: 10, What: fmt.Sprintf("%d %s, with the admission policies", n, what), Unit: "s", Ours: median(on), Floor: median(off), Ratio: median(ratios),
		Note: fmt.Sprintf("floor: without; %.0f instead of %.0f a second; ratio %.2f to %.2f; %.0f instead of %.0f µs of the API server's CPU each",
			float64(n)/median(on), float64(n)/median(off), quantile(ratios, 0), quantile(ratios, 1), median(cpuOn), median(cpuOff))})
	return nil
}

// roomyNodes makes the nodes ready for the scheduler, as the controller that would do it does not run, and for any
// number of pods.
func (s *scene) roomyNodes(ctx context.Context) error {
	const room = `{"pods":"100000","cpu":"10000","memory":"100Ti"}`
	return parallel(ctx, loadWorkers, len(s.nodes), func(ctx context.Context, _, i int) error {
		nodes := s.kube.CoreV1().Nodes()
		_, err1 := nodes.Patch(ctx, s.nodes[i], types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		_, err2 := nodes.Patch(ctx, s.nodes[i], types.MergePatchType, []byte(`{"status":{"capacity":`+room+`,"allocatable":`+room+`}}`), metav1.PatchOptions{}, "status")
		if err := errors.Join(err1, err2); err != nil {
			return fmt.Errorf("make room on node %s: %w", s.nodes[i], err)
		}
		return nil
	})
}

// apiServer is the process of the API server.
func (c *cluster) apiServer() (pid int, err error) {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range commands {
		command, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(command, []byte("kube-apiserver\x00")) || !bytes.Contains(command, []byte(filepath.Dir(c.Kubeconfig)+"/")) {
			continue // Another one, or one that has ended.
		}
		return strconv.Atoi(filepath.Base(filepath.Dir(path)))
	}
	return 0, errors.New("there is no process of the API server")
}

// nextApp is a name for pods that no others have.
func (s *scene) nextApp() string {
	s.apps++
	return fmt.Sprintf("admission%d", s.apps)
}

// installPolicies installs the policies, and waits until a binding is labelled.
func (s *scene) installPolicies(ctx context.Context) error {
	dir, err := framework.ModuleFile("artifacts", "admission")
	if err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "apply", "-k", dir); err != nil {
		return err
	}
	return s.waitForPolicies(ctx, true)
}

func (s *scene) removePolicies(ctx context.Context) error {
	dir, err := framework.ModuleFile("artifacts", "admission")
	if err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "delete", "-k", dir); err != nil {
		return err
	}
	return s.waitForPolicies(ctx, false)
}

func (s *scene) waitForPolicies(ctx context.Context, want bool) error {
	pods := s.kube.CoreV1().Pods(s.name)
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, policyTimeout, true, func(ctx context.Context) (bool, error) {
		pod, err := s.createPod(ctx, "probe", s.nextApp())
		if err != nil {
			return false, err
		}
		if err := pods.Bind(ctx, binding(pod.Name, s.nodes[0]), metav1.CreateOptions{}); err != nil {
			return false, err
		}
		if pod, err = pods.Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return false, err
		}
		return (pod.Labels[v1alpha1.DefaultNodeLabelKey] != "") == want, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the policies work (%t): %w", want, err)
	}
	return nil
}

func binding(pod, node string) *corev1.Binding {
	return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
}

// bindOnce binds pods as fast as bare clients can.
func (s *scene) bindOnce(ctx context.Context, app string, n int) (time.Duration, error) {
	pods, err := s.seedPods(ctx, app, app, n, podPending)
	if err != nil {
		return 0, err
	}
	return s.timed(ctx, n, func(ctx context.Context, i int) error {
		return s.kube.CoreV1().Pods(s.name).Bind(ctx, binding(pods[i].name, s.nodes[i%len(s.nodes)]), metav1.CreateOptions{})
	})
}

// updateStatusOnce changes the status of pods that have their label, as kubelets do.
func (s *scene) updateStatusOnce(ctx context.Context, app string, n int) (time.Duration, error) {
	pods, err := s.seedPods(ctx, app, app, n, podLabelled)
	if err != nil {
		return 0, err
	}
	return s.timed(ctx, n, func(ctx context.Context, i int) error {
		_, err := s.kube.CoreV1().Pods(s.name).Patch(ctx, pods[i].name, types.StrategicMergePatchType, []byte(`{"status":{"message":"still running"}}`), metav1.PatchOptions{}, "status")
		return err
	})
}

// createOnce creates pods that have no node and no label, as nearly all are created.
func (s *scene) createOnce(ctx context.Context, app string, n int) (time.Duration, error) {
	return s.timed(ctx, n, func(ctx context.Context, i int) error {
		_, err := s.createPod(ctx, app, fmt.Sprintf("%s-%06d", app, i))
		return err
	})
}

func (s *scene) timed(ctx context.Context, n int, do func(ctx context.Context, i int) error) (time.Duration, error) {
	began := time.Now()
	err := parallel(ctx, admissionWorkers, n, func(ctx context.Context, _, i int) error { return do(ctx, i) })
	return time.Since(began), err
}

const admissionWorkers = 16

// scheduleOnce has kube-scheduler, which is started for it, bind pods that wait.
func (s *scene) scheduleOnce(ctx context.Context, app string, n int) (elapsed time.Duration, err error) {
	if _, err := s.seedPods(ctx, app, app, n, podPending); err != nil {
		return 0, err
	}
	mark, err := s.audit.mark()
	if err != nil {
		return 0, err
	}
	stop, err := s.startScheduler()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	bound, err := s.audit.waitFor(ctx, mark, n, "pods bound by the scheduler", all(by(schedulerAgent), verb("create", "pods/binding"), done))
	return bound.span(), err
}

// startScheduler starts the playground's kube-scheduler.
func (s *scene) startScheduler() (stop func() error, err error) {
	path := os.Getenv("PLAYGROUND_BIN")
	if path == "" {
		if path, err = framework.ModuleFile("bin", "playground"); err != nil {
			return nil, err
		}
	}
	dir := filepath.Dir(s.Kubeconfig)
	log, err := os.Create(filepath.Join(dir, "logs", "kube-scheduler.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path)
	cmd.Args = []string{"kube-scheduler", "--kubeconfig", filepath.Join(dir, "pki", "kube-scheduler.kubeconfig"),
		"--leader-elect=false", "--secure-port", "0", "--kube-api-qps", schedulerQPS, "--kube-api-burst", schedulerQPS}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start kube-scheduler: %w", err)
	}
	return func() error {
		if err := cmd.Process.Kill(); err != nil {
			return fmt.Errorf("stop kube-scheduler: %w", err)
		}
		_ = cmd.Wait() // It was killed.
		return nil
	}, nil
}
