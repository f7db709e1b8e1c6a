package memory

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"makeway.dev/makeway/plugin/wire"
)

// How long a pod that could not be evicted for a preemptor is left out of that preemptor's plans; each further time
// doubles it. The first time is short: the next plan takes another pod at once where there is one, and where there is
// none, what the API server refuses may be allowed soon.
const (
	UnevictableInitial = 10 * time.Second
	unevictableMax     = 5 * time.Minute
	// maxCauseBytes bounds what is told of the API server's text.
	maxCauseBytes = 200
)

// Results and reasons of victims in outcomes that the plugin tells apart.
const (
	VictimFailed = "failed"
	victimExempt = "spared"
)

// transientReasons are an evictor's reasons for a victim that failed only since time ran out.
var transientReasons = []string{"throttled", "server-error", "unavailable", "conflict", "stale", "unauthorized", "bus"}

// Unevictable remembers, by preemptor, pods that could not be evicted for it, so that the next plan is another one.
// Another preemptor may well evict them: an admission policy may look at who asks and when. Bounded by the pods
// that are pending. Safe for concurrent use.
type Unevictable struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	pods map[types.UID]map[types.UID]*unevictableVictim
}

// unevictableVictim is a pod that could not be evicted.
type unevictableVictim struct {
	until    time.Time
	duration time.Duration
	cause    string
}

func NewUnevictable(clock clock.PassiveClock) *Unevictable {
	return &Unevictable{clock: clock, pods: map[types.UID]map[types.UID]*unevictableVictim{}}
}

// Take remembers the victims of an outcome that could not be evicted, and returns how many of them the plan had not been
// asked to leave out.
// namespace: of the preemptor.
func (r *Unevictable) Take(preemptor types.UID, namespace string, victims []wire.VictimOutcome) (news int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for _, v := range victims {
		failed := v.Result == VictimFailed && !slices.Contains(transientReasons, v.Reason)
		if !failed && v.Result != victimExempt {
			continue
		}
		of := r.pods[preemptor]
		if of == nil {
			of = map[types.UID]*unevictableVictim{}
			r.pods[preemptor] = of
		}
		entry := of[types.UID(v.UID)]
		if entry == nil {
			entry = &unevictableVictim{duration: UnevictableInitial / 2}
			of[types.UID(v.UID)] = entry
		}
		if !now.Before(entry.until) {
			news++
		}
		entry.duration = min(2*entry.duration, unevictableMax)
		entry.until = now.Add(entry.duration)
		entry.cause = causeOf(v, namespace)
	}
	r.shrink(preemptor)
	return news
}

// shrink keeps as many as a plan request may name: those that are left out longest.
func (r *Unevictable) shrink(preemptor types.UID) {
	of := r.pods[preemptor]
	for len(of) > wire.MostRefusedVictims {
		var first types.UID
		for uid, entry := range of {
			if first == "" || entry.until.Before(of[first].until) {
				first = uid
			}
		}
		delete(of, first)
	}
}

// answered is how a refusal of the API server begins: its status and reason.
var answered = regexp.MustCompile(`^\d{3} \w+: `)

// causeOf is why a victim stays, without its name. Of a pod of another namespace than the preemptor's it is a constant or a status:
// what an admission policy, a budget or a group is called there is not for the preemptor's condition. See docs/visibility.md.
func causeOf(v wire.VictimOutcome, namespace string) string {
	if v.Namespace != namespace {
		return cmp.Or(strings.TrimSuffix(answered.FindString(v.Message), ": "), v.Reason, v.Result)
	}
	text := cmp.Or(v.Message, v.Reason, v.Result)
	if v.Name != "" {
		for _, quoted := range []string{`"%s"`, "'%s'", "/%s"} {
			text = strings.ReplaceAll(text, fmt.Sprintf(quoted, v.Name), fmt.Sprintf(quoted, "…"))
		}
	}
	return wire.Beginning(text, maxCauseBytes)
}

// Of returns the pods to leave out of a preemptor's plan now, in order, when the first may be tried again, and why they
// were not evicted, in a few words; empty where there is none.
func (r *Unevictable) Of(preemptor types.UID) (victims []string, first time.Time, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	causes := map[string]int{}
	for uid, entry := range r.pods[preemptor] {
		if !now.Before(entry.until) {
			continue
		}
		victims = append(victims, string(uid))
		causes[entry.cause]++
		if first.IsZero() || entry.until.Before(first) {
			first = entry.until
		}
	}
	if len(victims) == 0 {
		return nil, time.Time{}, ""
	}
	slices.Sort(victims)
	var most string
	for cause, count := range causes {
		if count > causes[most] || (count == causes[most] && cause < most) {
			most = cause
		}
	}
	are := "1 pod is"
	if len(victims) > 1 {
		are = fmt.Sprintf("%d pods are", len(victims))
	}
	return victims, first, are + " left out for now, as impossible to evict: " + most
}

// has reports whether pods could not be evicted for a preemptor.
func (r *Unevictable) has(preemptor types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods[preemptor]) > 0
}

func (r *Unevictable) forget(preemptor types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, preemptor)
}
