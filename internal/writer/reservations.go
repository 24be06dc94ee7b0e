package writer

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Reservations count the Services that several LocalServices are about to create in a namespace, so that together they
// do not exceed a limit that each of them keeps.
type Reservations struct {
	kube   kubernetes.Interface
	needed bool // there is a limit

	mu       sync.Mutex
	reserved map[string]int // by namespace
}

// NewReservations makes Reservations, of which there are none yet. Where there is no limit, none are needed.
func NewReservations(kube kubernetes.Interface, needed bool) *Reservations {
	return &Reservations{kube: kube, needed: needed, reserved: map[string]int{}}
}

// Reserve reserves room for n Services in a namespace until release is called, when they have been created, or are not
// to be. It returns how many Services the namespace has then, with all that are reserved. What is created meanwhile may
// count twice, but nothing is left out: those that others reserve are counted before those that there are.
func (r *Reservations) Reserve(ctx context.Context, namespace string, n int) (total int, release func(), err error) {
	if n == 0 || !r.needed {
		return 0, func() {}, nil
	}
	total = r.add(namespace, n)
	release = sync.OnceFunc(func() { r.add(namespace, -n) })
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	list, err := r.kube.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		release()
		return 0, nil, fmt.Errorf("count the Services of namespace %s: %w", namespace, err)
	}
	total += len(list.Items)
	if list.RemainingItemCount != nil {
		total += int(*list.RemainingItemCount)
	}
	return total, release, nil
}

// add returns how many are reserved then.
func (r *Reservations) add(namespace string, n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved[namespace] += n
	sum := r.reserved[namespace]
	if sum == 0 {
		delete(r.reserved, namespace)
	}
	return sum
}
