package integration

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
	"github.com/localservice-dev/local-service-controller/test/framework"
)

// followsError compares a node's Service with everything that its LocalService specifies. The API server chooses the
// rest.
func followsError(ls *v1alpha1.LocalService, service *corev1.Service, node string) error {
	want, err1 := runtime.DefaultUnstructuredConverter.ToUnstructured(&ls.Spec)
	got, err2 := runtime.DefaultUnstructuredConverter.ToUnstructured(&service.Spec)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for _, own := range []string{"selector", "nodeSelector", "nodeSelectorTerms", "serviceMetadata", "mode"} {
		delete(want, own)
	}
	// A second family may have been added to the requested one.
	if n := len(ls.Spec.IPFamilies); n > 0 && n < len(service.Spec.IPFamilies) {
		got["ipFamilies"] = got["ipFamilies"].([]any)[:n]
	}
	var difference error
	if d := missing("spec", want, got); d != "" {
		difference = fmt.Errorf("the spec of Service %s: %s", service.Name, d)
	}
	selector := maps.Clone(ls.Spec.Selector)
	selector[nodeLabel] = node
	labels := map[string]string{v1alpha1.OwnerLabelKey: ls.Name, nodeLabel: node}
	annotations := map[string]string{v1alpha1.NodeAnnotationKey: node}
	if m := ls.Spec.ServiceMetadata; m != nil {
		maps.Copy(labels, m.Labels)
		maps.Copy(annotations, m.Annotations)
		if len(m.Labels)+len(m.Annotations) > 0 {
			const record = v1alpha1.AppliedMetadataAnnotationKey
			annotations[record] = service.Annotations[record]
		}
	}
	return errors.Join(difference,
		framework.Equal("selector of "+service.Name, service.Spec.Selector, selector),
		framework.Equal("labels of "+service.Name, service.Labels, labels),
		framework.Equal("annotations of "+service.Name, service.Annotations, annotations))
}

// missing returns the place where one JSON value has something that the other lacks, "" for none. A targetPort of 0,
// which its type cannot omit, does not count.
func missing(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		other, _ := got.(map[string]any)
		for key := range want {
			if difference := missing(path+"."+key, want[key], other[key]); difference != "" {
				return difference
			}
		}
		return ""
	case []any:
		other, _ := got.([]any)
		if len(want) != len(other) {
			return fmt.Sprintf("%s: got %v; want %v", path, got, want)
		}
		if path == "spec.ports" { // Their order means nothing.
			want, other = sortedPorts(want), sortedPorts(other)
		}
		for i := range want {
			if difference := missing(fmt.Sprintf("%s[%d]", path, i), want[i], other[i]); difference != "" {
				return difference
			}
		}
		return ""
	}
	if strings.HasSuffix(path, ".targetPort") && want == int64(0) || reflect.DeepEqual(want, got) {
		return ""
	}
	return fmt.Sprintf("%s: got %v; want %v", path, got, want)
}

func sortedPorts(ports []any) []any {
	key := func(port any) string {
		fields := port.(map[string]any)
		return fmt.Sprintf("%05d/%v", fields["port"], cmp.Or(fields["protocol"], any(string(corev1.ProtocolTCP))))
	}
	return slices.SortedFunc(slices.Values(ports), func(a, b any) int { return strings.Compare(key(a), key(b)) })
}
