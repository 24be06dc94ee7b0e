// finish-crd copies a CustomResourceDefinition from its standard input to its standard output, and finishes what the
// markers in Go comments cannot say: descriptions in one line, because the lines of a Go comment would break those of
// `kubectl explain` in odd places; the bounds of numbers, and of ports that are numbers or names; that a time is no
// list; how long the values of a map may be, which the API server must know to bound the cost of rules about them; that
// a key without a value has an empty one, as in a Service; and that metadata has a name, so that refusals of it can say
// where it is.
package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/yaml"
)

const (
	// maxAnnotationLength is such that the annotations of a Service have less than the 256 KiB that the API allows.
	maxAnnotationLength = 50000
	// maxVariableLabelLength leaves room for the key of a node's label in a variable, which stands for something
	// shorter.
	maxVariableLabelLength = 200
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cannot finish the CustomResourceDefinition:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	finish("", crd)
	if data, err = yaml.Marshal(crd); err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

func finish(name string, value any) {
	switch value := value.(type) {
	case map[string]any:
		if s, ok := value["description"].(string); ok {
			value["description"] = strings.Join(strings.Fields(s), " ")
		}
		if values, ok := value["additionalProperties"].(map[string]any); ok {
			values["maxLength"] = content.LabelValueMaxLength
			values["default"] = "" // Otherwise the API server drops a key without a value: the selector selects more.
			switch name {
			case "annotations":
				values["maxLength"] = maxAnnotationLength
			case "labels":
				values["maxLength"] = maxVariableLabelLength
			}
		}
		if value["x-kubernetes-int-or-string"] == true { // a port: without bounds, it may be one that nobody can decode
			value["minimum"], value["maximum"], value["maxLength"] = 0, 65535, 15
		}
		if value["format"] == "int32" { // a port, or a count; older API servers take ones that do not fit
			setDefault(value, "minimum", 0)
			setDefault(value, "maximum", math.MaxInt32)
		}
		if value["format"] == "date-time" { // the API server lets lists pass for a string that has a format
			value["minItems"], value["maxItems"] = 1, 0
		}
		if name == "openAPIV3Schema" {
			metadata := value["properties"].(map[string]any)["metadata"].(map[string]any)
			metadata["properties"] = map[string]any{"name": map[string]any{"type": "string"}}
		}
		for key, child := range value {
			finish(key, child)
		}
	case []any:
		for _, child := range value {
			finish("", child)
		}
	}
}

func setDefault(object map[string]any, key string, value any) {
	if _, isSet := object[key]; !isSet {
		object[key] = value
	}
}
