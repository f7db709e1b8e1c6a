package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// DefaultPrefix is the subject prefix where none is given.
const DefaultPrefix = "makeway"

// Inbox begins the subjects on which the scheduler is answered, without the last dot. It is the
// scheduler's own, so that NATS can keep everybody else from listening there.
const Inbox = "_INBOX.makeway.scheduler"

// ShadowInbox is that of a shadow scheduler.
const ShadowInbox = "_INBOX.makeway.shadow"

// Answerable reports whether a question may be answered on a subject: in an inbox of makeway's, or on the subject that
// the server makes for an answer to another account. Any other might be one of a stream's, and the answer would be
// stored as a message.
func Answerable(reply string) bool {
	return strings.HasPrefix(reply, "_INBOX.makeway.") || strings.HasPrefix(reply, "_R_.")
}

// Subjects spells every subject and stream name under one prefix, as
// bus/src/makeway/bus/subjects.py does. Two clusters on one NATS use two prefixes.
type Subjects struct{ Prefix string }

// NewSubjects checks the prefix and spells the names.
func NewSubjects(prefix string) (Subjects, error) {
	if prefix == "" || strings.ContainsAny(prefix, " \t\r\n*>") ||
		strings.HasPrefix(prefix, ".") || strings.HasSuffix(prefix, ".") || strings.Contains(prefix, "..") {
		return Subjects{}, fmt.Errorf("subject prefix %q: use letters, digits, '-', '_' and inner '.', as in makeway", prefix)
	}
	return Subjects{prefix}, nil
}

// Plan is where plan requests are answered.
func (s Subjects) Plan() string { return s.Prefix + ".v1.plan" }

// PlanGroup is where those about pod groups are answered.
func (s Subjects) PlanGroup() string { return s.Prefix + ".v1.plan.group" }

// Commit is where the planner is asked to store orders.
func (s Subjects) Commit() string { return s.Prefix + ".v1.commit" }

// Verify is where a shadow scheduler answers plan requests with plans that its filters have verified.
func (s Subjects) Verify() string { return s.Prefix + ".v1.verify" }

// Control is where the leading planner says what is in force.
func (s Subjects) Control() string { return s.Prefix + ".v1.control" }

// Status is where every component is asked how it is.
func (s Subjects) Status() string { return s.Prefix + ".v1.status" }

// Orders matches every message of the stream OrdersStream.
func (s Subjects) Orders() string { return s.Prefix + ".v1.orders.>" }

// Outcomes matches every message of the stream OutcomesStream.
func (s Subjects) Outcomes() string { return s.Prefix + ".v1.outcomes.>" }

// OrdersStream is the name of the stream of orders.
func (s Subjects) OrdersStream() string { return s.stem() + "_ORDERS" }

// OutcomesStream is the name of the stream of their outcomes.
func (s Subjects) OutcomesStream() string { return s.stem() + "_OUTCOMES" }

// ControlStream is the name of the stream of control states.
func (s Subjects) ControlStream() string { return s.stem() + "_CONTROL" }

// EpochsBucket is the name of the key-value bucket that counts the starts of schedulers without a Lease.
func (s Subjects) EpochsBucket() string { return s.stem() + "_EPOCHS" }

// stem begins the names of streams.
func (s Subjects) stem() string { return strings.ToUpper(strings.ReplaceAll(s.Prefix, ".", "_")) }

// Order is the subject that holds the orders for a pod or a PodGroup, by kind and UID: one live one at a time.
func (s Subjects) Order(kind, uid string) string {
	return s.Prefix + ".v1.orders." + kind + "." + uid
}

// OfOrder is where an order belongs: one live one a preemptor or a queue. It is empty for one that names none.
func (s Subjects) OfOrder(order *EvictionOrder) string {
	uid := order.PreemptorUID()
	if order.Kind == KindQuota && order.Queue != "" {
		uid = queueToken(order.Queue)
	}
	if uid == "" {
		return ""
	}
	return s.Order(order.Kind, uid)
}

// queueToken is a queue's path as a token of a subject, as queue_hash in bus/src/makeway/bus/subjects.py: it may have dots, and letters
// that no subject takes.
func queueToken(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:])[:32]
}

// Outcome is the subject that holds an order's one outcome.
func (s Subjects) Outcome(orderID string) string {
	return s.Prefix + ".v1.outcomes." + orderID
}
