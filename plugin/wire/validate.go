package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Message is a pointer to one of this package's structs. What a decoder cannot know of it is in its checks, which are
// generated.
type Message interface {
	// problem returns the path to what is wrong and what it is, or nothing.
	problem() string
}

var (
	rawType = reflect.TypeFor[json.RawMessage]()
	tokens  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// present wants a required text not to be empty, a required list, map or raw value to be there.
func present(name string, is bool) string {
	if is {
		return ""
	}
	return "." + name + " is missing or empty"
}

// moment wants a required time to be there.
func moment(name string, t Time) string {
	if t.IsZero() {
		return "." + name + " is missing or the zero time"
	}
	return ""
}

// token wants an id to be one that can be part of a subject, or empty.
func token(name, id string) string {
	if id == "" || tokens.MatchString(id) {
		return ""
	}
	return fmt.Sprintf(".%s: %q cannot be part of a subject", name, id)
}

// oneOf wants a text to be one of the values, or empty.
func oneOf(name, text string, values ...string) string {
	if text == "" || slices.Contains(values, text) {
		return ""
	}
	return fmt.Sprintf(".%s: %q is none of %s", name, text, strings.Join(values, "|"))
}

// within wants a number to be neither below least nor above most.
func within(name string, number, least, most int64) string {
	switch {
	case number < least:
		return fmt.Sprintf(".%s: %d is less than %d", name, number, least)
	case number > most:
		return fmt.Sprintf(".%s: %d is more than %d", name, number, most)
	}
	return ""
}

// valueOr returns a number that may be missing, or another where it is.
func valueOr(number *int64, missing int64) int64 {
	if number == nil {
		return missing
	}
	return *number
}

// atMost wants a list not to be longer than most.
func atMost(name string, length, most int) string {
	if length <= most {
		return ""
	}
	return fmt.Sprintf(".%s: more than %d elements", name, most)
}

// inside checks a struct in a field, if it is there.
func inside[T any, P interface {
	*T
	Message
}](name string, one P) string {
	if one == nil {
		return ""
	}
	if problem := one.problem(); problem != "" {
		return "." + name + problem
	}
	return ""
}

// each checks the elements of a list.
func each[T any, P interface {
	*T
	Message
}](name string, list []T) string {
	for i := range list {
		if problem := P(&list[i]).problem(); problem != "" {
			return "." + name + "[" + strconv.Itoa(i) + "]" + problem
		}
	}
	return ""
}

// values checks the values of a map; check gets their keys for names.
func values[V any](name string, of map[string]V, check func(key string, value V) string) string {
	for key, value := range of {
		if problem := check(key, value); problem != "" {
			return "." + name + problem
		}
	}
	return ""
}

// nullAt returns the path to a null in the JSON value of a type where the contract has no null, and what it is, or
// nothing. The decoder reads null as if nothing were there, and a missing list of protected namespaces protects
// none; only what is a pointer here may be null. It reads one level at a time, and only where there is a null at all:
// in the messages that makeway writes it is one search.
func nullAt(data []byte, t reflect.Type) string {
	if !hasNull(data) {
		return ""
	}
	isNull := string(bytes.TrimSpace(data)) == "null"
	switch {
	case t == rawType, isNull && t.Kind() == reflect.Pointer:
		return ""
	case isNull:
		return ": null where " + t.String() + " is expected"
	case t.Kind() == reflect.Pointer:
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
		fields := map[string]json.RawMessage{}
		_ = json.Unmarshal(data, &fields) // the decoder says what is no object
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if problem := nullAt(fields[name], t.Field(i).Type); problem != "" {
				return "." + name + problem
			}
		}
	case reflect.Map:
		entries := map[string]json.RawMessage{}
		_ = json.Unmarshal(data, &entries)
		for key, value := range entries {
			if problem := nullAt(value, t.Elem()); problem != "" {
				return "." + key + problem
			}
		}
	case reflect.Slice:
		var elements []json.RawMessage
		_ = json.Unmarshal(data, &elements)
		for i, element := range elements {
			if problem := nullAt(element, t.Elem()); problem != "" {
				return "[" + strconv.Itoa(i) + "]" + problem
			}
		}
	}
	return ""
}

// hasNull reports whether there is a null in valid JSON, where an n outside of texts begins nothing else.
func hasNull(data []byte) bool {
	if !bytes.Contains(data, []byte("null")) {
		return false
	}
	inString, escaped := false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped = c == '\\'
			inString = c != '"'
		case c == '"':
			inString = true
		case c == 'n':
			return true
		}
	}
	return false
}
