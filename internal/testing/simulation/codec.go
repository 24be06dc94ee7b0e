package simulation

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// wantsMetadata reports whether a request is for the metadata of objects only. Clients that would rather have protobuf
// accept JSON, too.
func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// partOf returns what a client gets of an object whose kind is set: all, or its metadata only.
func partOf(object Object, metadataOnly bool) runtime.Object {
	if !metadataOnly {
		return object
	}
	partial := meta.AsPartialObjectMetadata(object)
	partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return partial
}

// entry is an object as it is stored, and encoded only once.
type entry struct {
	object         Object
	whole, partial []byte
}

func (e *entry) encoded(metadataOnly bool) []byte {
	encoded := &e.whole
	if metadataOnly {
		encoded = &e.partial
	}
	if *encoded == nil {
		*encoded = encodeJSON(partOf(e.object, metadataOnly))
	}
	return *encoded
}

// encodeEvent returns an event of a watch.
func encodeEvent(kind watch.EventType, object []byte) []byte {
	return encodeJSON(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}})
}

// encodeList returns the response to a list request.
func encodeList(t *table, entries []*entry, version string, metadataOnly bool) []byte {
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	list.SetGroupVersionKind(t.kind.GroupVersion().WithKind(t.kind.Kind + "List"))
	if metadataOnly {
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
	}
	for _, e := range entries {
		list.Items = append(list.Items, runtime.RawExtension{Raw: e.encoded(metadataOnly)})
	}
	return encodeJSON(list)
}

var protobufSerializer = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

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
