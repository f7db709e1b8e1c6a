package orders

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"makeway.dev/makeway/plugin/wire"
)

var update = flag.Bool("update", false, "write the diagrams of the transition table")

// phases are all of them.
func phases() []Phase { return append(from(absent), known()...) }

// named is a phase as tables and diagrams have it.
func named(at Phase) string { return cmp.Or(string(at), "absent") }

// events are all of them, in the order of the diagrams.
var events = []event{
	onNominated, onAdopted, onReplaced, onStored, onNotNeeded, onSuperseded, onSucceeded, onFailed, onExpired, onNodeDeleted,
	onNodeUnresolvable, onNominationGone, onVictimsGone, onReverted, onRevertFailed, onPreemptorGone, onCycleFailed, onCycleTooEarly,
	onCycleEnded, onHoldEnded, onMembersMissing,
}

// countedPlaces counts how often places are held and released.
type countedPlaces struct{ held, Released int }

func (c *countedPlaces) ReserveQuota(wire.PodRef) { c.held++ }
func (c *countedPlaces) ReleaseQuota(types.UID)   { c.Released++ }

// inPhase is a state with pod p in a phase.
func inPhase(at Phase) (f *InFlight, p *Order, places *countedPlaces) {
	f, p, places = NewInFlight(noQuota{}), order("o1", "a"), &countedPlaces{}
	p.Phase = at
	if at != absent {
		f.put(p)
	}
	f.holds = places
	return f, p, places
}

func TestEveryEventInEveryPhaseDoesWhatTheTableSays(t *testing.T) {
	for _, at := range phases() {
		for _, happened := range events {
			t.Run(named(at)+"/"+string(happened), func(t *testing.T) {
				f, p, places := inPhase(at)
				if at == absent {
					f.put(p)
				}
				before := *p
				to, effects, ok := step(at, happened)

				if f.happens(p, happened) != ok {
					t.Errorf("it is said to change something: %t, want %t", !ok, ok)
				}

				if !ok {
					if !reflect.DeepEqual(*p, before) || places.held+places.Released != 0 {
						t.Errorf("a pair that is not in the table changes %+v to %+v", before, *p)
					}
					return
				}
				if p.Phase != to {
					t.Errorf("phase %v, want %v", p.Phase, to)
				}
				if at != absent && f.HasOrder("o1") == (to == absent) {
					t.Errorf("known: %t in phase %v", f.HasOrder("o1"), to)
				}
				if held, released := at == absent && to != absent, at != absent && to == absent; places.held != count(held) || places.Released != count(released) {
					t.Errorf("its place was held %d and released %d times from %v to %v", places.held, places.Released, at, to)
				}
				if slices.Contains(effects, closeGate) != p.Gated {
					t.Errorf("gated: %t with effects %v", p.Gated, effects)
				}
			})
		}
	}
}

func count(happened bool) int {
	if happened {
		return 1
	}
	return 0
}

// TestEveryCallInEveryPhaseIsAnEventOfTheTable makes what the callers of inflight may do in any phase.
func TestEveryCallInEveryPhaseIsAnEventOfTheTable(t *testing.T) {
	calls := map[event]func(f *InFlight){
		onStored:        func(f *InFlight) { stored(f, "o1", at(60000)) },
		onNotNeeded:     func(f *InFlight) { f.Abandon("o1") },
		onSuperseded:    func(f *InFlight) { f.Supersede("o1") },
		onSucceeded:     func(f *InFlight) { f.Succeed("o1", at(10), at(90000), notGone) },
		onFailed:        func(f *InFlight) { f.Fail("o1", "refused", at(10), time.Second) },
		onReverted:      func(f *InFlight) { f.Finish("o1") },
		onRevertFailed:  func(f *InFlight) { f.ActivationFailed("o1", at(10)) },
		onPreemptorGone: func(f *InFlight) { f.Forget("p") },
		onCycleEnded:    func(f *InFlight) { f.Cycled("p") },
		onCycleFailed:   func(f *InFlight) { f.Refuse("p", at(10), notThere) },
		onReplaced:      func(f *InFlight) { f.Begin(order("o3")) },
		onMembersMissing: func(f *InFlight) {
			f.MembersMissing("o1", "", true, at(10))
			f.MembersMissing("o1", "", true, at(10).Add(MissingLasts))
		},
	}
	for happened, call := range calls {
		for _, at := range phases() {
			t.Run(named(at)+"/"+string(happened), func(t *testing.T) {
				f, p, _ := inPhase(at)
				to, _, _ := step(at, happened)

				call(f)

				if p.Phase != to || f.HasOrder("o1") != (to != absent) {
					t.Errorf("phase %v, known %t, want %v", p.Phase, f.HasOrder("o1"), to)
				}
			})
		}
	}
}

func TestEveryPhaseIsReachedAndEnds(t *testing.T) {
	reached, ends := map[Phase]bool{absent: true}, map[Phase]bool{absent: true}
	for range phases() {
		for _, row := range table {
			for _, at := range row.from {
				if row.to != same && reached[at] {
					reached[row.to] = true
				}
				if row.to != same && ends[row.to] {
					ends[at] = true
				}
			}
		}
	}

	for _, at := range phases() {
		if !reached[at] || !ends[at] {
			t.Errorf("%v: reached %t, ends %t", at, reached[at], ends[at])
		}
	}
}

func TestThePairsOfTheTableAreDistinctAndUseEveryEventAndEffect(t *testing.T) {
	pairs, happens, carried := map[string]bool{}, map[event]bool{}, map[effect]bool{}
	for _, row := range table {
		for _, at := range row.from {
			if pair := fmt.Sprint(at, " ", row.event); pairs[pair] {
				t.Errorf("%s stands in it twice", pair)
			} else {
				pairs[pair] = true
			}
		}
		happens[row.event] = true
		for _, effect := range row.effects {
			carried[effect] = true
		}
	}
	if len(happens) != len(events) || len(carried) != 7 {
		t.Errorf("%d of %d events, %d of 7 effects", len(happens), len(events), len(carried))
	}
}

// arrows are the lines of a diagram: the transitions between phases, without what ends an order in every phase alike.
func arrows(format string, name func(Phase) string) []string {
	var lines []string
	for _, at := range phases() {
		for _, to := range phases() {
			var labels []string
			for _, happened := range events {
				next, effects, ok := step(at, happened)
				if !ok || next != to || next == at || slices.Contains([]event{onReplaced, onSuperseded, onNotNeeded}, happened) {
					continue
				}
				label := string(happened)
				if shown := slices.DeleteFunc(slices.Clone(effects), func(e effect) bool { return e == holdPlace || e == releasePlace }); len(shown) > 0 {
					label += " (" + words(shown) + ")"
				}
				labels = append(labels, label)
			}
			if len(labels) > 0 {
				lines = append(lines, fmt.Sprintf(format, name(at), name(to), strings.Join(labels, ", ")))
			}
		}
	}
	return lines
}

// comment is the diagram in the code.
func comment() []string {
	lines := arrows("//\t%-15s -> %-15s : %s", named)
	return slices.Concat([]string{"//"}, lines, []string{"//"})
}

// mermaid is the diagram in the documentation.
func mermaid() []string {
	lines := arrows("    %s --> %s: %s", func(p Phase) string {
		if p == absent {
			return "[*]"
		}
		return string(p)
	})
	return slices.Concat([]string{"", "```mermaid", "stateDiagram-v2"}, lines, []string{"```", ""})
}

func words(effects []effect) string {
	texts := make([]string, 0, len(effects))
	for _, effect := range effects {
		texts = append(texts, string(effect))
	}
	return strings.Join(texts, ", ")
}

// exportedRow is a row of the table as data.
type exportedRow struct {
	From    []string `json:"from"`
	Event   string   `json:"event"`
	To      string   `json:"to,omitempty"` // absent where the phase stays
	Effects []string `json:"effects,omitempty"`
}

// exported is the table with the times of an order's life, for the simulation of the protocol in tests/protocol.
func exported() ([]byte, error) {
	rows := make([]exportedRow, 0, len(table))
	for _, row := range table {
		shown := exportedRow{Event: string(row.event)}
		for _, at := range row.from {
			shown.From = append(shown.From, named(at))
		}
		if row.to != same {
			shown.To = named(row.to)
		}
		for _, effect := range row.effects {
			shown.Effects = append(shown.Effects, string(effect))
		}
		rows = append(rows, shown)
	}
	times := map[string]float64{}
	for name, long := range map[string]time.Duration{
		"answerFresh": AnswerFresh, "answeredWithin": AnsweredWithin, "earlyRetryDelay": earlyRetryDelay, "gateSlack": GateSlack,
		"leavingHold": leavingHold, "leavingSlack": wire.LeavingSlack, "longestLeavingHold": longestLeavingHold,
		"releasedLasts": releasedLasts, "revertWait": RevertWait, "settle": Settle, "shownWithin": shownWithin, "storedWithin": StoredWithin(1),
	} {
		times[name] = long.Seconds()
	}
	shown := map[string]any{
		"counts":      map[string]int{"earlyRetries": earlyRetries},
		"seconds":     times,
		"transitions": rows,
	}
	text, err := json.MarshalIndent(shown, "", "  ")
	return append(text, '\n'), err
}

func TestTheExportedTableIsTheTable(t *testing.T) {
	const path = "testdata/transitions.json"
	want, err := exported()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != string(want) {
		t.Errorf("%s is not the table: run go generate ./orders (%v)", path, err)
	}
}

func TestTheDiagramsShowTheTable(t *testing.T) {
	for path, shown := range map[string]struct {
		begin, end string
		lines      []string
	}{
		"transitions.go":           {"// diagram: begin", "// diagram: end", comment()},
		"testdata/architecture.md": {"<!-- phases of an order: begin -->", "<!-- phases of an order: end -->", mermaid()},
	} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, began := strings.Cut(string(data), shown.begin+"\n")
		_, tail, ended := strings.Cut(rest, shown.end+"\n")
		if !began || !ended {
			t.Fatalf("%s has no place for the diagram", path)
		}
		want := head + shown.begin + "\n" + strings.Join(shown.lines, "\n") + "\n" + shown.end + "\n" + tail
		if want == string(data) {
			continue
		}
		if !*update {
			t.Errorf("%s does not show the table: run go generate ./orders", path)
		} else if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
