package wire

import "testing"

func TestNamesAreSpelledAsOnThePythonSide(t *testing.T) {
	s, err := NewSubjects("one.two")
	if err != nil {
		t.Fatal(err)
	}

	for got, want := range map[string]string{
		s.Plan():                  "one.two.v1.plan",
		s.PlanGroup():             "one.two.v1.plan.group",
		s.Order(KindPod, "uid"):   "one.two.v1.orders.pod.uid",
		s.Order(KindGroup, "uid"): "one.two.v1.orders.group.uid",
		s.OfOrder(&EvictionOrder{Kind: KindQuota, Queue: "root.batch"}): "one.two.v1.orders.quota.c3ca3644d290d8305d8c8e10cbaa0c75",
		s.Outcome("ord-1"): "one.two.v1.outcomes.ord-1",
		s.Control():        "one.two.v1.control",
		s.ControlStream():  "ONE_TWO_CONTROL",
		s.OrdersStream():   "ONE_TWO_ORDERS",
		s.OutcomesStream(): "ONE_TWO_OUTCOMES",
		s.EpochsBucket():   "ONE_TWO_EPOCHS",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestPrefixesThatWouldBreakSubjectsAreRefused(t *testing.T) {
	for _, prefix := range []string{"", ".a", "a.", "a..b", "a b", "a.*", "a.>", "a\n"} {
		if _, err := NewSubjects(prefix); err == nil {
			t.Errorf("%q was taken", prefix)
		}
	}
}
