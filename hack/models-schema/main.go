// models-schema prints the OpenAPI schema of the LocalService API, from which the generators of the apply
// configurations and of the fake clientset learn which lists are maps.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/localservice-dev/local-service-controller/pkg/generated/openapi"
)

func main() {
	ref := func(name string) spec.Ref {
		return spec.MustCreateRef("#/definitions/" + friendlyName(name))
	}
	definitions := spec.Definitions{}
	for name, definition := range openapi.GetOpenAPIDefinitions(ref) {
		// A schema of its own for each version (v2, v3) is kept in an extension; the generators read version 2.
		schema := definition.Schema
		if v2, ok := schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok {
			schema = v2
		}
		definitions[friendlyName(name)] = schema
	}
	out, err := json.Marshal(spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "LocalService", Version: "unversioned"}},
		Paths:       &spec.Paths{},
		Definitions: definitions,
	}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot write the OpenAPI schema:", err)
		os.Exit(1)
	}
	fmt.Println(string(out))
}

// friendlyName turns a package path and type, k8s.io/api/core/v1.Pod, into an OpenAPI name, io.k8s.api.core.v1.Pod. The
// names that models have themselves are such names already.
func friendlyName(name string) string {
	if strings.Contains(name, "/") {
		return util.ToRESTFriendlyName(name)
	}
	return name
}
