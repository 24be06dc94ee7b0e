// apidoc prints the page of the API: every field of a CustomResourceDefinition with its meaning, default and
// validation, and the constants of the Go files named after it, such as conditions and their reasons.
//
//	apidoc CRD.yaml FILE.go... >api.md
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

const generated = "<!-- Generated from pkg/apis by hack/update-docs.sh: do not edit. -->\n\n"

// definition has what the page says about a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string
		Scope string
		Names struct {
			Kind, Plural string
			ShortNames   []string
		}
		Versions []struct {
			Name    string
			Schema  struct{ OpenAPIV3Schema schema }
			Columns []struct {
				Name, Description, JSONPath string
				Priority                    int
			} `json:"additionalPrinterColumns"`
		}
	}
}

// schema has what the page says about a field.
type schema struct {
	Type, Format, Pattern, Description string
	Properties                         map[string]*schema
	AdditionalProperties, Items        *schema
	Required, Enum                     []string
	Default                            any
	Minimum, Maximum                   *int64
	MaxLength, MaxItems, MaxProperties *int64
	IntOrString                        bool                       `json:"x-kubernetes-int-or-string"`
	Rules                              []struct{ Message string } `json:"x-kubernetes-validations"`
}

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot document the API:", err)
		os.Exit(1)
	}
}

func run(crd string, goFiles []string) error {
	data, err := os.ReadFile(crd)
	if err != nil {
		return err
	}
	var d definition
	if err := yaml.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("read %s: %w", crd, err)
	}
	names := d.Spec.Names
	for _, version := range d.Spec.Versions {
		root := version.Schema.OpenAPIV3Schema
		fmt.Printf("# %s\n\n"+generated+"`apiVersion: %s/%s`, `kind: %s`; for kubectl `%s` or `%s`. %s.\n\n%s\n",
			names.Kind,
			d.Spec.Group, version.Name, names.Kind, names.Plural, strings.Join(names.ShortNames, "`, `"), d.Spec.Scope,
			text(root.Description))
		fmt.Printf("\n`kubectl explain %s.spec` prints the same.\n", strings.ToLower(names.Kind))
		if rules := root.rules(); rules != "" {
			fmt.Printf("\nThe API server refuses it where:\n\n%s", rules)
		}
		for _, part := range []string{"spec", "status"} {
			root.Properties[part].print(part)
		}
		fmt.Print("\n## Columns of `kubectl get`\n\n| column | from | meaning |\n| --- | --- | --- |\n")
		for _, column := range version.Columns {
			name := column.Name
			if column.Priority > 0 {
				name += " (`-o wide`)"
			}
			fmt.Printf("| %s | `%s` | %s |\n", name, column.JSONPath, text(column.Description))
		}
	}
	for _, file := range goFiles {
		if err := printConstants(file); err != nil {
			return err
		}
	}
	return nil
}

// print prints a section for an object, and then those for the objects in it.
func (s *schema) print(path string) {
	object := s
	if s.Items != nil {
		object = s.Items
	}
	fmt.Printf("\n## %s\n\n%s\n", path, text(object.Description))
	fields := slices.Sorted(maps.Keys(object.Properties))
	fmt.Print("\n| field | type | meaning |\n| --- | --- | --- |\n")
	for _, name := range fields {
		field := object.Properties[name]
		fmt.Printf("| `%s` | %s | %s |\n", name, field.kind(),
			strings.Join(slices.Concat([]string{text(field.Description)}, field.bounds(slices.Contains(object.Required,
				name))), "<br>"))
	}
	if rules := object.rules(); rules != "" {
		fmt.Printf("\nThe API server refuses it where:\n\n%s", rules)
	}
	for _, name := range fields {
		field := object.Properties[name]
		if field.Properties != nil {
			field.print(path + "." + name)
		} else if field.Items != nil && field.Items.Properties != nil {
			field.print(path + "." + name + "[]")
		}
	}
}

// kind is the type of a field, for people.
func (s *schema) kind() string {
	switch {
	case s.IntOrString:
		return "integer or string"
	case s.Items != nil:
		return "list of " + s.Items.kind() + "s"
	case s.AdditionalProperties != nil:
		return "map of " + s.AdditionalProperties.kind() + "s"
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

// bounds are what validation demands, and the default.
func (s *schema) bounds(required bool) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if required {
		add("**Required.**")
	}
	if s.Default != nil {
		add("Default: `%v`.", s.Default)
	}
	if enum := s.Enum; len(enum) > 0 {
		add("One of `%s`.", strings.Join(enum, "`, `"))
	} else if s.Items != nil && len(s.Items.Enum) > 0 {
		add("Each one of `%s`.", strings.Join(s.Items.Enum, "`, `"))
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		add("From %d to %d.", *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		add("At least %d.", *s.Minimum)
	}
	if s.MaxLength != nil {
		add("At most %d characters.", *s.MaxLength)
	}
	if s.Items != nil && s.MaxItems != nil {
		add("At most %d items.", *s.MaxItems)
	}
	if s.MaxProperties != nil {
		add("At most %d pairs.", *s.MaxProperties)
	}
	if s.Pattern != "" {
		add("Must match `%s`.", strings.ReplaceAll(s.Pattern, "|", `\|`))
	}
	for _, rule := range s.Rules {
		add("Refused: %s.", text(rule.Message))
	}
	return lines
}

// rules are the messages of rules about more than one field, as a list.
func (s *schema) rules() (list string) {
	for _, rule := range s.Rules {
		list += "- " + text(rule.Message) + "\n"
	}
	return list
}

// text makes Markdown of a description.
func text(s string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "|", `\|`, "*", `\*`).Replace(strings.Join(strings.Fields(s),
		" "))
}

// printConstants prints the groups of constants of a Go file that have a comment as a whole: that is their heading.
func printConstants(name string) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST || group.Doc == nil || !group.Lparen.IsValid() {
			continue
		}
		fmt.Printf("\n## %s\n\n| | |\n| --- | --- |\n", strings.TrimSuffix(strings.TrimSpace(group.Doc.Text()), "."))
		for _, spec := range group.Specs {
			constant := spec.(*ast.ValueSpec)
			literal, ok := constant.Values[0].(*ast.BasicLit)
			if !ok {
				return fmt.Errorf("%s: %s is no literal", name, constant.Names[0])
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				return err
			}
			meaning := strings.TrimLeft(strings.TrimPrefix(text(constant.Doc.Text()), constant.Names[0].Name), ": ")
			fmt.Printf("| `%s` | %s |\n", value, strings.TrimPrefix(meaning, "is "))
		}
	}
	return nil
}
