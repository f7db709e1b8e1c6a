package control

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

func TestRevisionsThatNoPlannerCanHaveGivenAreThoseOfThePlannersTable(t *testing.T) {
	data, err := os.ReadFile("../testdata/revisions/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Cases []struct {
			Name     string    `json:"name"`
			Now      time.Time `json:"now"`
			Revision int64     `json:"revision"`
			Refused  bool      `json:"refused"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range table.Cases {
		if isAhead(c.Revision, c.Now) != c.Refused {
			t.Errorf("%s: %d at %s: refused is %t", c.Name, c.Revision, c.Now, !c.Refused)
		}
	}
}

func TestTheMoreRestrictiveModeHolds(t *testing.T) {
	state := func(mode string, namespaces map[string]string) *Control {
		c := &Control{}
		c.current.Store(&snapshot{state: &wire.ControlState{Mode: mode, NamespaceModes: namespaces}})
		return c
	}
	for _, test := range []struct {
		control *Control
		own     string
		want    string
	}{
		{&Control{}, wire.ModeEnforce, wire.ModeEnforce},
		{&Control{}, wire.ModeOff, wire.ModeOff},
		{state(wire.ModeObserve, nil), wire.ModeEnforce, wire.ModeObserve},
		{state(wire.ModeEnforce, nil), wire.ModeObserve, wire.ModeObserve},
		{state(wire.ModeOff, nil), wire.ModeObserve, wire.ModeOff},
		{state(wire.ModeObserve, map[string]string{"ns": wire.ModeEnforce}), wire.ModeEnforce, wire.ModeEnforce},
		{state(wire.ModeEnforce, map[string]string{"ns": wire.ModeOff}), wire.ModeEnforce, wire.ModeOff},
		{state(wire.ModeEnforce, map[string]string{"other": wire.ModeOff}), wire.ModeEnforce, wire.ModeEnforce},
	} {
		if got := test.control.Mode(test.own, "ns"); got != test.want {
			t.Errorf("own %s, control %+v: %s, want %s", test.own, test.control.current.Load(), got, test.want)
		}
	}
}

func TestQueuesHoldPodsInModeEnforceButThoseThatAClusterNeedsToStart(t *testing.T) {
	mode := func(mode string, namespaces map[string]string) *wire.ControlState {
		return &wire.ControlState{Mode: mode, NamespaceModes: namespaces}
	}
	for name, test := range map[string]struct {
		state     *wire.ControlState
		own       string // the profile's mode
		priority  int32
		namespace string
		want      bool
	}{
		"a pod":                                     {nil, wire.ModeEnforce, 0, "default", true},
		"the profile only observes":                 {nil, wire.ModeObserve, 0, "default", false},
		"the policy only observes":                  {mode(wire.ModeObserve, nil), wire.ModeEnforce, 0, "default", false},
		"the policy only observes the namespace":    {mode(wire.ModeEnforce, map[string]string{"default": wire.ModeObserve}), wire.ModeEnforce, 0, "default", false},
		"a system priority":                         {nil, wire.ModeEnforce, SystemPriority, "default", false},
		"just below":                                {nil, wire.ModeEnforce, SystemPriority - 1, "default", true},
		"makeway's own namespace":                   {nil, wire.ModeEnforce, 0, "makeway-system", false},
		"a system namespace":                        {nil, wire.ModeEnforce, 0, "kube-system", false},
		"a namespace that the policy exempts":       {exempting("cni"), wire.ModeEnforce, 0, "cni", false},
		"one that only the arguments exempt":        {exempting("cni"), wire.ModeEnforce, 0, "kube-system", true},
		"makeway's own, that the policy leaves out": {exempting("cni"), wire.ModeEnforce, 0, "makeway-system", false},
	} {
		c := New(Options{QueuesAt: types.NamespacedName{Namespace: "makeway-system"}, Exempt: []string{"kube-system"}})
		if test.state != nil {
			c.current.Store(&snapshot{state: test.state})
		}
		if got := c.QueuesHold(test.own, test.priority, test.namespace); got != test.want {
			t.Errorf("%s: held %t", name, got)
		}
	}
}

func exempting(namespaces ...string) *wire.ControlState {
	return &wire.ControlState{Mode: wire.ModeEnforce, ExemptNamespaces: namespaces}
}

func TestTheBrakeIsUnderstoodAsThePlannerAndTheEvictorUnderstandIt(t *testing.T) {
	data, err := os.ReadFile("../testdata/brake/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name       string
		Data       map[string]string
		Everywhere bool
		Namespaces []string
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err, len(cases))
	}
	for _, test := range cases {
		found := ParseBrake(test.Data)
		if found.everywhere != test.Everywhere || !slices.Equal(found.namespaces, test.Namespaces) && len(found.namespaces)+len(test.Namespaces) > 0 {
			t.Errorf("%s: %+v", test.Name, found)
		}
		if found.Holds("another") != test.Everywhere {
			t.Errorf("%s: holds another namespace: %t", test.Name, found.Holds("another"))
		}
		for _, namespace := range test.Namespaces {
			if !found.Holds(namespace) {
				t.Errorf("%s: does not hold %s", test.Name, namespace)
			}
		}
	}
}

func TestAClassMayExemptPodsByItsAnnotationsWhateverTheyMean(t *testing.T) {
	for name, test := range map[string]struct {
		annotations map[string]string
		tolerates   bool
	}{
		"none":                    {},
		"a delay":                 {annotations: map[string]string{"makeway.dev/preemption-delay": "30s"}},
		"no seconds":              {annotations: map[string]string{tolerationSeconds: "0"}},
		"no seconds and a number": {annotations: map[string]string{tolerationSeconds: "0", minimumPreemptablePriority: "5"}},
		"seconds":                 {annotations: map[string]string{tolerationSeconds: "60"}, tolerates: true},
		"a number":                {annotations: map[string]string{minimumPreemptablePriority: "5"}, tolerates: true},
		"no number":               {annotations: map[string]string{tolerationSeconds: "for ever"}, tolerates: true},
	} {
		if got := toleratesPreemption(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: test.annotations}}); got != test.tolerates {
			t.Errorf("%s: %v, want %v", name, got, test.tolerates)
		}
	}
}

func TestTheEvictorsBreakerIsReadAsTheEvictorsReadIt(t *testing.T) {
	data, err := os.ReadFile("../testdata/breaker/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Now   time.Time `json:"now"`
		Cases []struct {
			Name string            `json:"name"`
			Data map[string]string `json:"data"`
			Open []string          `json:"open"` // namespaces; "" for all
		} `json:"cases"`
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, test := range table.Cases {
		found := parseTrips(test.Data, table.Now)

		open := []string{}
		if found.everywhere {
			open = append(open, "")
		}
		for namespace, until := range found.namespaces {
			if table.Now.Before(until) {
				open = append(open, namespace)
			}
		}
		if slices.Sort(open); !slices.Equal(open, test.Open) {
			t.Errorf("%s: open for %q", test.Name, open)
		}
	}
}
