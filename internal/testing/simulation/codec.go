package simulation

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/localservice-dev/local-service-controller/pkg/apis/localservice/v1alpha1"
)

// form is how a client wants objects: as protobuf or as JSON, whole or their metadata only.
type form struct{ protobuf, metadataOnly bool }

// formOf returns the form that a request accepts. Custom resources have no protobuf of their own, but their metadata
// has.
func formOf(r *http.Request, t *table) form {
	accept := r.Header.Get("Accept")
	f := form{metadataOnly: strings.Contains(accept, "as=PartialObjectMetadata")}
	isCustom := t != nil && t.kind.GroupVersion() == v1alpha1.SchemeGroupVersion
	f.protobuf = strings.HasPrefix(accept, runtime.ContentTypeProtobuf) && (!isCustom || f.metadataOnly)
	return f
}

func (f form) contentType() string {
	if f.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// knownTypes are the types of all that is encoded as protobuf, or listed.
var knownTypes = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

var protobufSerializer = protobuf.NewSerializer(knownTypes, knownTypes)

// encode returns an object in a form. Its kind must be set.
func (f form) encode(object runtime.Object) []byte {
	object = f.partOf(object)
	if !f.protobuf {
		return encodeJSON(object)
	}
	var out bytes.Buffer
	utilruntime.Must(protobufSerializer.Encode(object, &out))
	return out.Bytes()
}

// partOf returns what a form has of an object. A list has it already.
func (f form) partOf(object runtime.Object) runtime.Object {
	whole, isObject := object.(Object)
	if !f.metadataOnly || !isObject {
		return object
	}
	partial := meta.AsPartialObjectMetadata(whole)
	partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return partial
}

// entry is an object as it is stored, and encoded only once for each form.
type entry struct {
	object  Object
	encoded map[form][]byte
}

func (e *entry) in(f form) []byte {
	if e.encoded[f] == nil {
		e.encoded[f] = f.encode(e.object)
	}
	return e.encoded[f]
}

// event returns an event of a watch, in the framing of the form.
func (f form) event(kind watch.EventType, object []byte) []byte {
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}}
	if !f.protobuf {
		return encodeJSON(event)
	}
	encoded, err := event.Marshal()
	utilruntime.Must(err)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(encoded))), encoded...)
}

// list returns the response to a list request.
func (f form) list(t *table, entries []*entry, version string) []byte {
	kind := t.kind.GroupVersion().WithKind(t.kind.Kind + "List")
	if f.metadataOnly {
		kind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
	}
	var items []runtime.Object
	for _, e := range entries {
		items = append(items, f.partOf(e.object))
	}
	list, err := knownTypes.New(kind)
	utilruntime.Must(err)
	utilruntime.Must(meta.SetList(list, items))
	list.(metav1.ListInterface).SetResourceVersion(version)
	list.GetObjectKind().SetGroupVersionKind(kind)
	return f.encode(list)
}

// decode reads the object that a request sends, as protobuf or as JSON.
func decode(r *http.Request, into runtime.Object) error {
	body, err := readBody(r)
	if err != nil || len(body) == 0 {
		return err
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		_, _, err = protobufSerializer.Decode(body, nil, into)
		return err
	}
	return json.Unmarshal(body, into)
}

func readBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	defer r.Body.Close()
	return io.ReadAll(r.Body)
}
