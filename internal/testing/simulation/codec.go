package simulation

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
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

var protobufSerializer = func() *protobuf.Serializer {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return protobuf.NewSerializer(s, s)
}()

// encode returns an object in a form. Its kind must be set.
func (f form) encode(object runtime.Object) []byte {
	if f.metadataOnly {
		object = metadataOf(object)
	}
	var out bytes.Buffer
	var err error
	if f.protobuf {
		err = protobufSerializer.Encode(object, &out)
	} else {
		err = json.NewEncoder(&out).Encode(object)
	}
	if err != nil {
		panic(fmt.Errorf("encode a %T: %w", object, err)) // It was decoded before.
	}
	return out.Bytes()
}

func metadataOf(object runtime.Object) runtime.Object {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object // a list, which is made of metadata already
	}
	partial := meta.AsPartialObjectMetadata(accessor)
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
		return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, bytes.TrimSpace(object))
	}
	encoded, err := event.Marshal()
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(encoded))), encoded...)
}

// list returns the response to a list request.
func (f form) list(t *table, entries []*entry, version string) []byte {
	listMeta := metav1.ListMeta{ResourceVersion: version}
	if f.metadataOnly {
		list := &metav1.PartialObjectMetadataList{ListMeta: listMeta}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		for _, e := range entries {
			list.Items = append(list.Items, *metadataOf(e.object).(*metav1.PartialObjectMetadata))
		}
		return form{protobuf: f.protobuf}.encode(list)
	}
	if !f.protobuf {
		var items [][]byte
		for _, e := range entries {
			items = append(items, e.in(f))
		}
		return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":%q},"items":[%s]}`,
			t.kind.Kind+"List", t.kind.GroupVersion(), version, bytes.Join(items, []byte(",")))
	}
	list, err := scheme.Scheme.New(t.kind.GroupVersion().WithKind(t.kind.Kind + "List"))
	if err != nil {
		panic(err)
	}
	var items []runtime.Object
	for _, e := range entries {
		items = append(items, e.object)
	}
	if err := meta.SetList(list, items); err != nil {
		panic(err)
	}
	list.(metav1.ListInterface).SetResourceVersion(version)
	list.GetObjectKind().SetGroupVersionKind(t.kind.GroupVersion().WithKind(t.kind.Kind + "List"))
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
