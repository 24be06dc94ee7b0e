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

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const generated = "<!-- Generated from pkg/apis by hack/update-docs.sh: do not edit. -->\n\n"

// schema has what the page says about a field.
type schema = apiextensionsv1.JSONSchemaProps

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
	var d apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("read %s: %w", crd, err)
	}
	names := d.Spec.Names
	for _, version := range d.Spec.Versions {
		root := *version.Schema.OpenAPIV3Schema
		fmt.Printf("# %s\n\n"+generated+"`apiVersion: %s/%s`, `kind: %s`; for kubectl `%s` or `%s`. %s.\n\n%s\n",
			names.Kind,
			d.Spec.Group, version.Name, names.Kind, names.Plural, strings.Join(names.ShortNames, "`, `"), d.Spec.Scope,
			text(root.Description))
		fmt.Printf("\n`kubectl explain %s.spec` prints the same.\n", strings.ToLower(names.Kind))
		printRules(root)
		for _, part := range []string{"spec", "status"} {
			printObject(root.Properties[part], part)
		}
		fmt.Print("\n## Columns of `kubectl get`\n\n| column | from | meaning |\n| --- | --- | --- |\n")
		for _, column := range version.AdditionalPrinterColumns {
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

// printObject prints a section for an object, or a list of them, and then those for the objects in it.
func printObject(object schema, path string) {
	if object.Items != nil {
		object = *object.Items.Schema
	}
	fmt.Printf("\n## %s\n\n%s\n", path, text(object.Description))
	fields := slices.Sorted(maps.Keys(object.Properties))
	fmt.Print("\n| field | type | meaning |\n| --- | --- | --- |\n")
	for _, name := range fields {
		field := object.Properties[name]
		lines := append([]string{text(field.Description)}, bounds(field, slices.Contains(object.Required, name))...)
		fmt.Printf("| `%s` | %s | %s |\n", name, kind(field), strings.Join(lines, "<br>"))
	}
	printRules(object)
	for _, name := range fields {
		field := object.Properties[name]
		if field.Properties != nil {
			printObject(field, path+"."+name)
		} else if field.Items != nil && field.Items.Schema.Properties != nil {
			printObject(field, path+"."+name+"[]")
		}
	}
}

// kind is the type of a field, for people.
func kind(s schema) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Items != nil:
		return "list of " + kind(*s.Items.Schema) + "s"
	case s.AdditionalProperties != nil:
		return "map of " + kind(*s.AdditionalProperties.Schema) + "s"
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

// bounds describes what validation demands, and the default.
func bounds(s schema, required bool) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if required {
		add("**Required.**")
	}
	if s.Default != nil {
		add("Default: `%s`.", value(*s.Default))
	}
	if len(s.Enum) > 0 {
		add("One of `%s`.", values(s.Enum))
	} else if s.Items != nil && len(s.Items.Schema.Enum) > 0 {
		add("Each one of `%s`.", values(s.Items.Schema.Enum))
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		add("From %.0f to %.0f.", *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		add("At least %.0f.", *s.Minimum)
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
	for _, rule := range s.XValidations {
		add("Refused: %s.", text(rule.Message))
	}
	return lines
}

// value is a value as people write it: a string without quotes.
func value(v apiextensionsv1.JSON) string { return strings.Trim(string(v.Raw), `"`) }

func values(all []apiextensionsv1.JSON) string {
	var list []string
	for _, v := range all {
		list = append(list, value(v))
	}
	return strings.Join(list, "`, `")
}

// printRules prints the messages of rules about more than one field, as a list.
func printRules(s schema) {
	for i, rule := range s.XValidations {
		if i == 0 {
			fmt.Print("\nThe API server refuses it where:\n\n")
		}
		fmt.Printf("- %s\n", text(rule.Message))
	}
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
