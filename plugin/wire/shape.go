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

// encoding/json takes more than the contract allows: null for anything, keys in any case, a missing
// number, a second value of a key merged into the first. What this side takes the Python side takes too,
// so the shape of a message is looked at before it is read. A field's rules are in its tags: without
// omitempty it is required, and a text must not be empty; check is "token", an id that can stand in a
// subject, "count", a number that is not negative, "<=" and a number, the elements a list may have, or the
// values that a text may have.

var (
	timeType = reflect.TypeFor[Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	tokens   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// structForm is what is expected of one struct, read from its tags once.
type structForm struct {
	fields []fieldForm
	byName map[string]int // into fields
}

type fieldForm struct {
	name     string
	of       reflect.Type
	check    string
	required bool
}

// mostFields is how many fields a struct may have: shape.fields keeps those it has seen in the bits of a word.
const mostFields = 64

var forms sync.Map // of *structForm by reflect.Type

func formOf(t reflect.Type) *structForm {
	if known, ok := forms.Load(t); ok {
		return known.(*structForm)
	}
	if t.NumField() > mostFields {
		panic(fmt.Sprintf("%s has more than %d fields", t, mostFields))
	}
	form := &structForm{byName: make(map[string]int, t.NumField())}
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		name, _, _ := strings.Cut(tag.Get("json"), ",")
		field := fieldForm{name: name, of: t.Field(i).Type, check: tag.Get("check"), required: !strings.Contains(tag.Get("json"), ",omitempty")}
		if field.check == "" && field.required {
			field.check = "text"
		}
		form.byName[name] = len(form.fields)
		form.fields = append(form.fields, field)
	}
	known, _ := forms.LoadOrStore(t, form)
	return known.(*structForm)
}

// checkShape holds valid JSON to the struct that into points to. O(bytes).
func checkShape(data []byte, into any) error {
	s := shape{data: data}
	if problem := s.value(reflect.TypeOf(into).Elem(), ""); problem != "" {
		return malformed(ReasonInvalid, "$%s", problem)
	}
	return nil
}

// shape walks over one document that is known to be valid JSON. Its methods give what is wrong, after the path
// to it, or nothing: the path is put together on the way out.
type shape struct {
	data []byte
	at   int
}

// value looks at the next value, which should be of a type.
func (s *shape) value(t reflect.Type, check string) string {
	if t == rawType {
		s.skip()
		return ""
	}
	first := s.next()
	if t.Kind() == reflect.Pointer {
		if first == 'n' {
			s.scalar()
			return ""
		}
		t = t.Elem()
	}
	switch first {
	case '"':
		if t == timeType {
			s.text() // json.Unmarshal reads it
			return ""
		}
		text := s.text()
		if t.Kind() == reflect.String {
			return checkText(text, check)
		}
		return unfit(text, t)
	case '{':
		switch {
		case t.Kind() == reflect.Struct && t != timeType:
			return s.fields(formOf(t))
		case t.Kind() == reflect.Map:
			return s.entries(t.Elem(), check)
		}
		return unfit([]byte("{"), t)
	case '[':
		if t.Kind() == reflect.Slice {
			return s.elements(t.Elem(), check)
		}
		return unfit([]byte("["), t)
	}
	return checkScalar(s.scalar(), t, check)
}

// checkScalar looks at a number, a bool or null.
func checkScalar(got []byte, t reflect.Type, check string) string {
	switch got[0] {
	case 'n':
		return unfit([]byte("<nil>"), t)
	case 't', 'f':
		if t.Kind() != reflect.Bool {
			return unfit(got, t)
		}
		return ""
	}
	if t.Kind() < reflect.Int || t.Kind() > reflect.Int64 || bytes.ContainsAny(got, ".eE") {
		return unfit(got, t)
	}
	if check == "count" && got[0] == '-' && string(got) != "-0" {
		return fmt.Sprintf(": %s is negative", got)
	}
	return ""
}

func unfit(got []byte, t reflect.Type) string {
	return fmt.Sprintf(": %s where %s is expected", got, t)
}

// fields looks at an object that should be a struct.
func (s *shape) fields(form *structForm) string {
	var seen uint64
	for s.more('{', '}') {
		key := s.key()
		i, ok := form.byName[string(key)]
		if !ok {
			for name := range form.byName {
				if strings.EqualFold(name, string(key)) {
					return fmt.Sprintf(".%s: it is written %s", key, name)
				}
			}
			s.skip()
			continue
		}
		field := &form.fields[i]
		if seen&(1<<i) != 0 {
			return "." + field.name + ": it is there twice"
		}
		seen |= 1 << i
		if problem := s.value(field.of, field.check); problem != "" {
			return "." + field.name + problem
		}
	}
	for i := range form.fields {
		if field := &form.fields[i]; field.required && seen&(1<<i) == 0 {
			return "." + field.name + " is missing"
		}
	}
	return ""
}

// entries looks at an object that should be a map.
func (s *shape) entries(t reflect.Type, check string) string {
	for s.more('{', '}') {
		key := s.key()
		if problem := s.value(t, check); problem != "" {
			return "." + string(key) + problem
		}
	}
	return ""
}

func (s *shape) elements(t reflect.Type, check string) string {
	most, bounded := strings.CutPrefix(check, "<=")
	if bounded {
		check = ""
	}
	for i := 0; s.more('[', ']'); i++ {
		if bounded && strconv.Itoa(i) == most {
			return ": more than " + most + " elements"
		}
		if problem := s.value(t, check); problem != "" {
			return "[" + strconv.Itoa(i) + "]" + problem
		}
	}
	return ""
}

// next is the first byte of what comes next.
func (s *shape) next() byte {
	for {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
}

// more goes on to the next member of an object or array, over the opening bracket or a comma; where there is
// none it goes over the closing one.
func (s *shape) more(opening, closing byte) bool {
	switch s.next() {
	case closing:
		s.at++
		return false
	case opening:
		s.at++
		if s.next() == closing {
			s.at++
			return false
		}
	default: // a comma
		s.at++
	}
	return true
}

// key reads a key and its colon.
func (s *shape) key() []byte {
	s.next()
	key := s.text()
	s.next()
	s.at++
	return key
}

// text reads a string: a part of the document where nothing in it is escaped.
func (s *shape) text() []byte {
	begin := s.at
	escaped := false
	for s.at++; s.data[s.at] != '"'; s.at++ {
		if s.data[s.at] == '\\' {
			escaped = true
			s.at++
		}
	}
	s.at++
	if !escaped {
		return s.data[begin+1 : s.at-1]
	}
	var text string
	_ = json.Unmarshal(s.data[begin:s.at], &text) // valid, as the whole is
	return []byte(text)
}

// scalar reads a number, a bool or null.
func (s *shape) scalar() []byte {
	begin := s.at
	for s.at < len(s.data) && strings.IndexByte(",]} \t\r\n", s.data[s.at]) < 0 {
		s.at++
	}
	return s.data[begin:s.at]
}

// skip goes over a value of any kind.
func (s *shape) skip() {
	switch s.next() {
	case '"':
		s.text()
	case '{':
		for s.more('{', '}') {
			s.key()
			s.skip()
		}
	case '[':
		for s.more('[', ']') {
			s.skip()
		}
	default:
		s.scalar()
	}
}

func checkText(text []byte, check string) string {
	switch check {
	case "":
		return ""
	case "text":
		if len(text) == 0 {
			return " is empty"
		}
	case "token":
		if !tokens.Match(text) {
			return fmt.Sprintf(": %q cannot be part of a subject", text)
		}
	default:
		for one := range strings.SplitSeq(check, "|") {
			if one == string(text) {
				return ""
			}
		}
		return fmt.Sprintf(": %q is none of %s", text, check)
	}
	return ""
}
