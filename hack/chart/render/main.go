// Render prints what templates of the chart give, in this order, for those who install without Helm, or with -helm what
// Helm installs:
//
//	render [-values YAML] CHART TEMPLATE...
//	render [-values YAML] -helm CHART
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

func main() {
	values := flag.String("values", "", "values of the chart, in YAML")
	isHelm := flag.Bool("helm", false, "print all objects of a release")
	flag.Parse()
	service := "kubectl"
	if *isHelm {
		service = "Helm"
	}
	out, err := render(flag.Arg(0), *values, service, flag.Args()[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "render the chart:", err)
		os.Exit(1)
	}
	fmt.Print(out)
}

// emptyLines are left where an action of a template stands alone in its line.
var emptyLines = regexp.MustCompile(`\n(\s*\n)+`)

// render returns the documents that templates of a chart give, or all its templates for a release. The chart sees
// whether it is Helm that renders it: see lsc.labels in its helpers.
func render(folder, values, service string, templates []string) (string, error) {
	parsed := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &parsed); err != nil {
		return "", err
	}
	chart, err := loader.Load(folder)
	if err != nil {
		return "", err
	}
	release := common.ReleaseOptions{Name: chart.Metadata.Name, Namespace: "local-service-system", Revision: 1,
		IsInstall: true}
	all, err := util.ToRenderValues(chart, parsed, release, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	all["Release"].(map[string]any)["Service"] = service
	files, err := engine.Engine{Strict: true}.RenderWithContext(context.Background(), chart, all)
	if err != nil {
		return "", err
	}
	if service == "Helm" {
		for _, template := range chart.Templates {
			if name := strings.TrimPrefix(template.Name, "templates/"); strings.HasSuffix(name, ".yaml") {
				templates = append(templates, name)
			}
		}
	}
	var documents []string
	for _, template := range templates {
		text, exists := files[chart.Metadata.Name+"/templates/"+template]
		if !exists {
			return "", fmt.Errorf("there is no template %s", template)
		}
		text = emptyLines.ReplaceAllString("\n"+text, "\n")
		text = strings.TrimPrefix(strings.TrimSpace(text), "---\n")
		documents = append(documents, regexp.MustCompile(` +\n`).ReplaceAllString(text, "\n")+"\n")
	}
	return strings.Join(documents, "---\n"), nil
}
