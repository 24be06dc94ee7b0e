// metrics-reference prints the reference page of the controller's own metrics, from the registry that serves them.
package main

import (
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/localservice-dev/local-service-controller/internal/metrics"
	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

const head = `# Metrics

<!-- Generated from the code by hack/update-docs.sh: do not edit. -->

All metrics of the controller's own. [Monitoring](../operations.md#monitoring) says how to read them, and which others there are.
They are ALPHA in the terms of Kubernetes: a release may change them, and its notes say so.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	// A registry reports a metric only if it has a series.
	ls := &v1alpha1.LocalService{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	ls.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonInvalidSpec}}
	metrics.Register(&metrics.Collector{
		LocalServices: func() iter.Seq[*v1alpha1.LocalService] {
			return slices.Values([]*v1alpha1.LocalService{ls})
		},
	})
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return fmt.Errorf("gather metrics: %w", err)
	}
	fmt.Print(head)
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "localservice_") {
			fmt.Printf("| `%s` | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()),
				labelsOf(family), strings.TrimPrefix(family.GetHelp(), "[ALPHA] "))
		}
	}
	return nil
}

func labelsOf(family *dto.MetricFamily) string {
	var names []string
	for _, label := range family.GetMetric()[0].GetLabel() {
		names = append(names, "`"+label.GetName()+"`")
	}
	return strings.Join(names, ", ")
}
