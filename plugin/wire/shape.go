package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
)

// encoding/json takes more than the contract allows: null for anything, keys in any case, a missing
// number, a second value of a key merged into the first. What this side takes the Python side takes too,
// so the shape of a message is looked at before it is read. A field's rules are in its tags: without
// omitempty it is required, and a text must not be empty; check is "token", an id that can stand in a
// subject, "count", a number that is not negative, or the values that a text may have.

var (
	timeType = reflect.TypeFor[Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	tokens   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// checkShape holds valid JSON to the struct that into points to. O(bytes).
func checkShape(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	s := shape{decoder}
	if problem := s.value(reflect.TypeOf(into).Elem(), "$", ""); problem != "" {
		return malformed(ReasonInvalid, "%s", problem)
	}
	return nil
}

// shape walks over one document. Its methods give what is wrong, or nothing.
type shape struct{ *json.Decoder }

// value looks at the next value, which should be of a type.
func (s shape) value(t reflect.Type, path, check string) string {
	if t == rawType {
		var skipped json.RawMessage
		if err := s.Decode(&skipped); err != nil {
			return fmt.Sprintf("%s: %v", path, err)
		}
		return ""
	}
	token, err := s.Token()
	if err != nil {
		return fmt.Sprintf("%s: %v", path, err)
	}
	if t.Kind() == reflect.Pointer {
		if token == nil {
			return ""
		}
		t = t.Elem()
	}
	fits := false
	switch got := token.(type) {
	case string:
		if t == timeType {
			return "" // json.Unmarshal reads it
		}
		if fits = t.Kind() == reflect.String; fits {
			return checkText(got, path, check)
		}
	case bool:
		fits = t.Kind() == reflect.Bool
	case json.Number:
		fits = t.Kind() >= reflect.Int && t.Kind() <= reflect.Int64 && !strings.ContainsAny(got.String(), ".eE")
		if fits && check == "count" && strings.HasPrefix(got.String(), "-") && got.String() != "-0" {
			return fmt.Sprintf("%s: %s is negative", path, got)
		}
	case json.Delim:
		switch {
		case got == '{' && t.Kind() == reflect.Struct && t != timeType:
			return s.fields(t, path)
		case got == '{' && t.Kind() == reflect.Map:
			return s.entries(t.Elem(), path, check)
		case got == '[' && t.Kind() == reflect.Slice:
			return s.elements(t.Elem(), path, check)
		}
	}
	if !fits {
		return fmt.Sprintf("%s: %v where %s is expected", path, token, t)
	}
	return ""
}

// fields looks at an object that should be a struct; its brace has been read.
func (s shape) fields(t reflect.Type, path string) string {
	known := make(map[string]reflect.StructField, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		known[name] = t.Field(i)
	}
	seen := make(map[string]bool, len(known))
	for s.More() {
		key, problem := s.key(path)
		if problem != "" {
			return problem
		}
		field, ok := known[key]
		if !ok {
			for name := range known {
				if strings.EqualFold(name, key) {
					return fmt.Sprintf("%s.%s: it is written %s", path, key, name)
				}
			}
			if problem := s.value(rawType, path+"."+key, ""); problem != "" {
				return problem
			}
			continue
		}
		inner := path + "." + key
		if seen[key] {
			return inner + ": it is there twice"
		}
		seen[key] = true
		check := field.Tag.Get("check")
		if check == "" && required(field) {
			check = "text"
		}
		if problem := s.value(field.Type, inner, check); problem != "" {
			return problem
		}
	}
	for name, field := range known {
		if required(field) && !seen[name] {
			return path + "." + name + " is missing"
		}
	}
	return s.end()
}

// entries looks at an object that should be a map.
func (s shape) entries(t reflect.Type, path, check string) string {
	for s.More() {
		key, problem := s.key(path)
		if problem != "" {
			return problem
		}
		if problem := s.value(t, path+"."+key, check); problem != "" {
			return problem
		}
	}
	return s.end()
}

func (s shape) elements(t reflect.Type, path, check string) string {
	for i := 0; s.More(); i++ {
		if problem := s.value(t, fmt.Sprintf("%s[%d]", path, i), check); problem != "" {
			return problem
		}
	}
	return s.end()
}

func (s shape) key(path string) (key, problem string) {
	token, err := s.Token()
	key, ok := token.(string)
	if err != nil || !ok {
		return "", fmt.Sprintf("%s: no key: %v", path, err)
	}
	return key, ""
}

// end reads the closing bracket.
func (s shape) end() string {
	if _, err := s.Token(); err != nil {
		return err.Error()
	}
	return ""
}

func required(field reflect.StructField) bool {
	return !strings.Contains(field.Tag.Get("json"), ",omitempty")
}

func checkText(text, path, check string) string {
	switch check {
	case "":
		return ""
	case "text":
		if text == "" {
			return path + " is empty"
		}
	case "token":
		if !tokens.MatchString(text) {
			return fmt.Sprintf("%s: %q cannot be part of a subject", path, text)
		}
	default:
		for one := range strings.SplitSeq(check, "|") {
			if one == text {
				return ""
			}
		}
		return fmt.Sprintf("%s: %q is none of %s", path, text, check)
	}
	return ""
}
