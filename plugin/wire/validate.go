package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// What a decoder cannot know of a message is in the tags of its structs: without omitempty a field is required,
// and a text, time, map or raw value that is required must be there and not be empty. check is "token", an id
// that can stand in a subject; "count", a number that is not negative; "<=" and a number, the elements that a
// list may have; or the values that a text may have. It holds for the elements of a map too.

var (
	timeType = reflect.TypeFor[Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	tokens   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// rule is what the tags of one field say.
type rule struct {
	index    int
	name     string
	check    string
	required bool
}

var rules sync.Map // of []rule by reflect.Type

func rulesOf(t reflect.Type) []rule {
	if known, ok := rules.Load(t); ok {
		return known.([]rule)
	}
	found := make([]rule, 0, t.NumField())
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		found = append(found, rule{index: i, name: name, check: tag.Get("check"), required: options != "omitempty"})
	}
	known, _ := rules.LoadOrStore(t, found)
	return known.([]rule)
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
		for _, r := range rulesOf(t) {
			if problem := nullAt(fields[r.name], t.Field(r.index).Type); problem != "" {
				return "." + r.name + problem
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

// Validate holds a decoded message, a pointer to one of this package's structs, to the rules in its tags.
func Validate(message any) error {
	if problem := problemOf(reflect.ValueOf(message).Elem(), ""); problem != "" {
		return malformed(ReasonInvalid, "$%s", problem)
	}
	return nil
}

// problemOf returns the path to what is wrong in a value and what it is, or nothing.
func problemOf(v reflect.Value, check string) string {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return problemOf(v.Elem(), check)
		}
	case reflect.Struct:
		if v.Type() != timeType {
			return problemOfFields(v)
		}
	case reflect.Slice:
		if v.Type() != rawType {
			return problemOfElements(v, check)
		}
	case reflect.Map:
		for entries := v.MapRange(); check != "" && entries.Next(); {
			if problem := problemOf(entries.Value(), check); problem != "" {
				return "." + entries.Key().String() + problem
			}
		}
	case reflect.String:
		return problemOfText(v.String(), check)
	case reflect.Int64:
		most, counted := strings.CutPrefix(check, "count")
		if counted && v.Int() < 0 {
			return fmt.Sprintf(": %d is negative", v.Int())
		}
		most, bounded := strings.CutPrefix(most, "<=")
		if limit, _ := strconv.ParseInt(most, 10, 64); counted && bounded && v.Int() > limit {
			return fmt.Sprintf(": %d is more than %d", v.Int(), limit)
		}
	}
	return ""
}

func problemOfFields(v reflect.Value) string {
	for _, r := range rulesOf(v.Type()) {
		field := v.Field(r.index)
		if empty(field) {
			switch {
			case !r.required:
				continue
			case field.Type() == timeType:
				return "." + r.name + " is missing or the zero time"
			}
			return "." + r.name + " is missing or empty"
		}
		if problem := problemOf(field, r.check); problem != "" {
			return "." + r.name + problem
		}
	}
	return ""
}

// empty reports whether a field is as it is where a message does not have it. A number or bool is not: 0 and
// false are values like others.
func empty(field reflect.Value) bool {
	switch field.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return field.IsZero()
	case reflect.Struct:
		return field.Type() == timeType && field.IsZero()
	}
	return false
}

func problemOfElements(v reflect.Value, check string) string {
	if most, bounded := strings.CutPrefix(check, "<="); bounded {
		if n, _ := strconv.Atoi(most); v.Len() > n {
			return ": more than " + most + " elements"
		}
		check = ""
	}
	for i := range v.Len() {
		if problem := problemOf(v.Index(i), check); problem != "" {
			return "[" + strconv.Itoa(i) + "]" + problem
		}
	}
	return ""
}

func problemOfText(text, check string) string {
	switch check {
	case "":
		return ""
	case "token":
		if !tokens.MatchString(text) {
			return fmt.Sprintf(": %q cannot be part of a subject", text)
		}
		return ""
	}
	for one := range strings.SplitSeq(check, "|") {
		if one == text {
			return ""
		}
	}
	return fmt.Sprintf(": %q is none of %s", text, check)
}
