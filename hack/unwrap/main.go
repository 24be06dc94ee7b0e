// unwrap copies a CustomResourceDefinition from its standard input to its standard output, with each description in one
// line: those of the Go comments that they come from would break the lines of `kubectl explain` in odd places.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cannot unwrap the descriptions:", err)
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
	unwrap(crd)
	if data, err = yaml.Marshal(crd); err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}

func unwrap(value any) {
	switch value := value.(type) {
	case map[string]any:
		if s, ok := value["description"].(string); ok {
			value["description"] = strings.Join(strings.Fields(s), " ")
		}
		for _, child := range value {
			unwrap(child)
		}
	case []any:
		for _, child := range value {
			unwrap(child)
		}
	}
}
