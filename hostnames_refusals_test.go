package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	core "k8s.io/client-go/testing"
)

// TestNodeLabelsDoNotCutBackoff: a label of a node that changes all the time mends nothing that was refused.
func TestNodeLabelsDoNotCutBackoff(t *testing.T) {
	inHostnamesWorld(t, testLocalService(), nil, func(w *hostnamesWorld) {
		var tries atomic.Int64
		w.kube.PrependReactor("create", "services", func(core.Action) (bool, runtime.Object, error) {
			tries.Add(1)
			return true, nil, apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("exceeded quota"))
		})
		for i := range 300 {
			w.set(testNode("a", fmt.Sprint("load=", i)))
			time.Sleep(time.Second)
		}
		if tries.Load() == 0 || tries.Load() > 8 { // 10 s, 20 s, ... 2 minutes later
			t.Errorf("%d tries within 5 minutes", tries.Load())
		}
	})
}
