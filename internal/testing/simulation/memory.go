package simulation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing/synctest"
	"unsafe"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Remembered returns what a program remembers about objects, by the UIDs or keys of those: in the fields of root, and
// in metrics.
func Remembered(root any, gone map[string]bool) []string {
	synctest.Wait() // Then nobody writes the memory, which is read here without a lock.
	m := &memory{gone: gone, seen: map[unsafe.Pointer]bool{}}
	m.walk("controllers", reflect.ValueOf(root))
	return append(m.found, series(gone)...)
}

// memory searches the maps and caches in all fields of a controller. It does not look into closures, nor into
// informers, which are not ours.
type memory struct {
	gone  map[string]bool
	seen  map[unsafe.Pointer]bool
	found []string
}

// looked has the packages whose types are searched.
var looked = []string{"github.com/localservice-dev/", "k8s.io/client-go/util/workqueue"}

func (m *memory) walk(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || m.seen[v.UnsafePointer()] {
			return
		}
		m.seen[v.UnsafePointer()] = true
		m.walk(path, v.Elem())
	case reflect.Interface:
		m.walk(path, v.Elem())
	case reflect.Struct:
		if !m.isCache(path, v) {
			m.walkFields(path, v)
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			m.check(path, entries.Key())
			m.walk(path, entries.Value())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			m.walk(path, v.Index(i))
		}
	}
}

func (m *memory) walkFields(path string, v reflect.Value) {
	isLooked := func(prefix string) bool { return strings.HasPrefix(v.Type().PkgPath(), prefix) }
	if v.Type().PkgPath() != "" && v.Type().PkgPath() != "main" && !slices.ContainsFunc(looked, isLooked) {
		return
	}
	for i := range v.NumField() {
		m.walk(path+"."+v.Type().Field(i).Name, v.Field(i))
	}
}

// isCache searches a value whose own type knows its contents.
func (m *memory) isCache(path string, v reflect.Value) bool {
	if !v.CanAddr() {
		return false
	}
	c, isCache := reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Interface().(*utilcache.LRUExpireCache)
	if isCache {
		for _, key := range c.Keys() { // without those that have expired
			m.check(path, reflect.ValueOf(key))
		}
	}
	return isCache
}

// check checks whether the key of an entry is, or contains, that of a deleted object.
func (m *memory) check(path string, key reflect.Value) {
	if key.Kind() == reflect.Interface {
		key = key.Elem()
	}
	isBetween := func(r rune) bool { return strings.ContainsRune(" {}[]", r) }
	for _, word := range strings.FieldsFunc(fmt.Sprintf("%v", key), isBetween) {
		if m.gone[word] || m.gone[strings.SplitN(word, "/", 2)[0]] {
			m.found = append(m.found, fmt.Sprintf("%s has %s", path, word))
		}
	}
}

// series returns the series of metrics about a deleted object.
func series(gone map[string]bool) (out []string) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return []string{err.Error()}
	}
	for _, family := range families {
		for _, metric := range family.Metric {
			labels := map[string]string{}
			for _, pair := range metric.Label {
				labels[pair.GetName()] = pair.GetValue()
			}
			if key := labels["namespace"] + "/" + labels["name"]; gone[key] {
				out = append(out, fmt.Sprintf("metric %s has %s", family.GetName(), key))
			}
		}
	}
	return out
}
