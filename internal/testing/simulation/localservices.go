package simulation

import (
	"context"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// customResource does with custom resources what the API server does, with the API server's own code.
type customResource struct {
	structural *structuralschema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
	status     v1alpha1.LocalServiceStatus // of a new object
	verdicts   sync.Map                    // *verdict, by what was asked for
}

// localServices is made once: compiling the rules takes longer than a history.
var localServices = sync.OnceValue(func() *customResource {
	_, file, _, _ := goruntime.Caller(0)
	data, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "..", "..", "artifacts", "examples", "crd.yaml"))
	utilruntime.Must(err)
	var crd apiextensionsv1.CustomResourceDefinition
	utilruntime.Must(yaml.UnmarshalStrict(data, &crd))
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	var props apiextensions.JSONSchemaProps
	utilruntime.Must(
		apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, &props, nil))
	c := &customResource{}
	utilruntime.Must(json.Unmarshal(schema.Properties["status"].Default.Raw, &c.status))
	c.structural, err = structuralschema.NewStructural(&props)
	utilruntime.Must(err)
	c.schema, _, err = validation.NewSchemaValidator(&props)
	utilruntime.Must(err)
	c.rules = cel.NewValidator(c.structural, true, celconfig.PerCallLimit)
	return c
})

// verdict is the result for an object: what is stored, or what is wrong with it.
type verdict struct {
	stored   []byte
	problems field.ErrorList
}

// admit drops what the schema does not know, fills in its defaults, and refuses what it does not allow. before is the
// stored object, nil for a creation.
func (c *customResource) admit(s *APIServer, before, object *v1alpha1.LocalService) error {
	asked := encodeJSON(&v1alpha1.LocalService{TypeMeta: object.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: object.Name}, Spec: object.Spec})
	var old []byte
	if before != nil {
		old = encodeJSON(&v1alpha1.LocalService{Spec: before.Spec})
	}
	// Evaluating the rules takes longer than all else, and histories ask for few different things.
	key := string(old) + string(asked)
	known, isKnown := c.verdicts.Load(key)
	if !isKnown {
		known, _ = c.verdicts.LoadOrStore(key, c.judge(old, asked))
	}
	v := known.(*verdict)
	if len(v.problems) > 0 {
		return s.tables["localservices"].invalid(object.Name, v.problems...)
	}
	var admitted v1alpha1.LocalService
	if err := json.Unmarshal(v.stored, &admitted); err != nil {
		return err
	}
	object.Spec = admitted.Spec
	return nil
}

// judge returns the verdict on an object. old is the stored one, nil for none.
func (c *customResource) judge(old, asked []byte) *verdict {
	object := map[string]any{}
	utilruntime.Must(json.Unmarshal(asked, &object))
	pruning.Prune(object, c.structural, true)
	defaulting.Default(object, c.structural)
	problems := validation.ValidateCustomResource(nil, object, c.schema)
	problems = append(problems, listtype.ValidateListSetsAndMaps(nil, c.structural, object)...)
	if len(problems) == 0 {
		var before any
		if old != nil {
			stored := runtime.DeepCopyJSON(object)
			stored["spec"] = nil // of what is decoded
			utilruntime.Must(json.Unmarshal(old, &stored))
			defaulting.Default(stored, c.structural)
			before = stored
		}
		problems, _ = c.rules.Validate(context.Background(), nil, c.structural, object, before,
			celconfig.RuntimeCELCostBudget)
	}
	return &verdict{encodeJSON(object), problems}
}

func createLocalService(s *APIServer, object Object) error {
	if err := createFirst(s, object); err != nil {
		return err
	}
	ls := object.(*v1alpha1.LocalService)
	ls.Status = *localServices().status.DeepCopy()
	ls.TypeMeta.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(v1alpha1.Kind))
	return localServices().admit(s, nil, ls)
}

func updateLocalService(s *APIServer, subresource string, old, object Object) error {
	before, after := old.(*v1alpha1.LocalService), object.(*v1alpha1.LocalService)
	if subresource == "status" {
		status := after.Status
		*after = *before.DeepCopy()
		after.Status = status
		return nil
	}
	after.Status = *before.Status.DeepCopy()
	if apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
		return nil
	}
	if !s.isLenient.Load() {
		if err := localServices().admit(s, before, after); err != nil {
			return err
		}
	}
	if !apiequality.Semantic.DeepEqual(before.Spec, after.Spec) {
		after.Generation = before.Generation + 1
	}
	return nil
}
