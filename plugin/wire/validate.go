package wire

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

var (
	timeType = reflect.TypeFor[Time]()
	tokens   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
)

// demands are what the contract wants of a field's value, or of each value of a map, beyond its type. The tags `check` say so, which are
// generated.
type demands struct {
	name        string
	required    bool     // a text is not empty, a time not zero; a list, map or raw value is there
	token       bool     // a text can be part of a subject, or is empty
	oneOf       []string // a text is one of these, or empty
	least, most int64    // of a number
	longest     int      // of a list
}

var (
	none  = demands{least: math.MinInt64, most: math.MaxInt64, longest: math.MaxInt}
	known sync.Map // the demands on the fields of structs, by reflect.Type
)

// demandsOn reads the tags of a struct's fields, once.
func demandsOn(t reflect.Type) []demands {
	if found, ok := known.Load(t); ok {
		return found.([]demands)
	}
	of := make([]demands, t.NumField())
	for i := range of {
		of[i] = none
		of[i].name, _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
		for check := range strings.SplitSeq(t.Field(i).Tag.Get("check"), ",") {
			what, value, _ := strings.Cut(check, "=")
			number, _ := strconv.ParseInt(value, 10, 64)
			switch what {
			case "required":
				of[i].required = true
			case "token":
				of[i].token = true
			case "oneOf":
				of[i].oneOf = strings.Split(value, "|")
			case "least":
				of[i].least = number
			case "most":
				of[i].most = number
			case "longest":
				of[i].longest = int(number)
			}
		}
	}
	known.Store(t, of)
	return of
}

// problem returns the path to the first value that is not as the contract wants it, and what is wrong there; or nothing.
func (d *demands) problem(v reflect.Value) string {
	switch {
	case v.Type() == timeType:
		if d.required && v.IsZero() {
			return " is missing or the zero time"
		}
		return ""
	case d.required && v.IsZero():
		return " is missing or empty"
	}
	switch v.Kind() {
	case reflect.String:
		switch text := v.String(); {
		case text == "":
		case d.token && !tokens.MatchString(text):
			return fmt.Sprintf(": %q cannot be part of a subject", text)
		case d.oneOf != nil && !slices.Contains(d.oneOf, text):
			return fmt.Sprintf(": %q is none of %s", text, strings.Join(d.oneOf, "|"))
		}
	case reflect.Int64:
		switch number := v.Int(); {
		case number < d.least:
			return fmt.Sprintf(": %d is less than %d", number, d.least)
		case number > d.most:
			return fmt.Sprintf(": %d is more than %d", number, d.most)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return d.problem(v.Elem())
		}
	case reflect.Struct:
		fields := demandsOn(v.Type())
		for i := range fields {
			if wrong := fields[i].problem(v.Field(i)); wrong != "" {
				return "." + fields[i].name + wrong
			}
		}
	case reflect.Slice:
		if v.Len() > d.longest {
			return fmt.Sprintf(": more than %d elements", d.longest)
		}
		for i := 0; v.Type().Elem().Kind() == reflect.Struct && i < v.Len(); i++ {
			if wrong := none.problem(v.Index(i)); wrong != "" {
				return "[" + strconv.Itoa(i) + "]" + wrong
			}
		}
	case reflect.Map:
		each := *d
		each.required = d.token || d.oneOf != nil
		for entries := v.MapRange(); entries.Next(); {
			if wrong := each.problem(entries.Value()); wrong != "" {
				return "." + entries.Key().String() + wrong
			}
		}
	}
	return ""
}
