"""What `makeway why` says of a pod group."""

import pytest
from msgspec.structs import replace

from makeway.bus.comparison import Comparison
from makeway.bus.decisions import DecisionRecord
from makeway.bus.messages import ClosedDomain, EvictionOrder, Outcome
from makeway.bus.plan import Refusal
from makeway.cli.history import comparisons
from makeway.cli.history.story import Story, preempted_row
from makeway.cli.why import text as why_text
from makeway.cli.why.command import _lines, _object
from makeway.cli.why.explanation import Explanation, Subject
from makeway.dev.samples import MESSAGES
from narrowing import as_a, there


def record() -> DecisionRecord:
    return as_a(DecisionRecord, MESSAGES["decision.group"])


def said(last: DecisionRecord | None, story: Story | None = None) -> list[str]:
    return _lines(
        Explanation(
            state="group",
            namespace="shop",
            name="train",
            uid="g",
            taken_by=(),
            made_room=(story,) if story else (),
            pending=None,
            last_decision=last,
        )
    )


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ("train", ("", "", "train")),
        ("shop/train", ("", "shop", "train")),
        ("podgroup/train", ("podgroup", "", "train")),
        ("podgroups.scheduling.k8s.io/train", ("podgroup", "", "train")),
        ("PodGroup/shop/train", ("podgroup", "shop", "train")),
        ("pod/train", ("pod", "", "train")),
    ],
)
def test_kinds_are_taken_as_kubectl_takes_them(what: str, found: tuple[str, str, str]) -> None:
    assert _object(what) == found


def test_a_plan_tells_members_price_terms_and_other_domains() -> None:
    text = "\n".join(said(record()))

    assert "for group shop/train (priority 1000): no order came of it" in text
    assert "members: 2 of 3 that wait, on 1 node within topology.kubernetes.io/zone=a" in text
    assert "price: 1 victim of priority 5 at most" in text
    assert "terms, the first counts most: budgets, victims" in text
    assert "instead: topology.kubernetes.io/zone=b: room for 1 member" in text


def test_few_nodes_of_members_are_named() -> None:
    plan = there(record().group_plan)
    many = tuple(replace(plan.placements[0], node=f"n{number}") for number in range(6))

    few = "\n".join(said(replace(record(), group_plan=replace(plan, placements=many[:2], domains=()))))
    more = "\n".join(said(replace(record(), group_plan=replace(plan, placements=many, domains=()))))

    assert " that wait, on 2 nodes: n0, n1\n" in few
    assert " that wait, on 6 nodes\n" in more


def test_an_order_for_a_group_makes_room_for_its_members() -> None:
    order = as_a(EvictionOrder, MESSAGES["order.group"])
    member = order.members[0]

    assert Subject(member.namespace, member.name, member.uid).served(order)
    assert Subject(member.namespace, member.name).served(order)
    assert not Subject(member.namespace, member.name, "another").served(order)
    assert not Subject(member.namespace, member.name, group=True).served(order)


def test_a_refusal_tells_what_is_missing() -> None:
    refusal = Refusal(reason="NotEnoughRoom", message="there is room for 1 of the 2 pods")

    text = "\n".join(said(replace(record(), status="refused", diagnosis=refusal, victims=())))

    assert "(priority 1000): refused" in text
    assert "NotEnoughRoom: there is room for 1 of the 2 pods" in text
    assert "price" not in text


def test_an_order_is_told_with_its_decision_and_not_twice() -> None:
    order = as_a(EvictionOrder, MESSAGES["order.group"])
    story = Story(order=replace(order, decision_id=record().decision_id), outcome=None, decision=record())

    text = "\n".join(said(record(), story))

    assert text.count(record().decision_id) == 1
    assert "price: 1 victim" in text


def test_a_victim_on_a_node_of_no_member_says_which_rack_it_keeps_closed() -> None:
    closed = ClosedDomain(rule="podAntiAffinity", key="example.com/rack", value="r1")
    order = as_a(EvictionOrder, MESSAGES["order.group"])
    order = replace(
        order, victims=(replace(order.victims[0], unit="", node="far", closes=closed), *order.victims[1:])
    )
    why = "; it keeps example.com/rack=r1 closed by the group's anti-affinity"

    ordered = "\n".join(said(record(), Story(order=order, outcome=None, decision=None)))
    decided = "\n".join(said(replace(record(), victims=order.victims)))

    assert (
        f" on far (priority {order.victims[0].priority}): {order.victims[0].rule}{why}; no outcome" in ordered
    )
    assert f" on far (priority {order.victims[0].priority}): {order.victims[0].rule}{why}" in decided


def compared() -> Comparison:
    return as_a(Comparison, MESSAGES["comparison.group"])


def test_a_preemption_by_others_for_a_group_is_told_with_what_makeway_would_have_done() -> None:
    told = list(why_text.served_by_another(compared()))

    assert told[0].startswith(
        "  default-scheduler made room for group shop/train (2 members) (priority 1000) on 2 nodes"
    )
    assert told[-1] == ("  makeway would have taken batch/batch-a on 2 nodes: better by lowest-priority-sum")


def test_a_pod_that_went_for_a_group_names_it() -> None:
    theirs = there(compared().default_preemption)

    told = list(why_text.preempted_by_another(compared(), theirs.victims[0]))

    assert told[1] == "  for:   group shop/train (2 members) (priority 1000)"


def test_a_group_that_went_whole_tells_for_whom_and_what_became_of_its_pods() -> None:
    order, outcome = MESSAGES["order.group"], MESSAGES["outcome.group"]
    assert isinstance(order, EvictionOrder)
    assert isinstance(outcome, Outcome)
    pods = [replace(order.victims[0], unit="PodGroup batch/train") for _ in range(2)]
    story = Story(order=order, outcome=outcome, decision=None)

    told = list(why_text.group_preempted(story, pods))

    head = f"group batch/train: 2 pods on 1 node, chosen by order {order.order_id}"
    assert told[0] == f"{head}: 2 pods failed (refused)"
    assert told[1].startswith("  for:   group shop/train")


def test_of_many_victims_for_a_group_a_few_are_told() -> None:
    theirs = there(compared().default_preemption)
    many = replace(compared(), default_preemption=replace(theirs, victims=theirs.victims * 10))

    assert "  and 15 victims more" in list(why_text.served_by_another(many))


def test_history_and_its_comparison_name_the_group_and_count_its_nodes() -> None:
    row = preempted_row(compared())
    line = comparisons.cells(compared(), compared().at)

    assert (row.kind, row.name, row.members, row.node) == ("group", "train", 2, "")
    assert line[2:5] == (
        "group shop/train (2 members)",
        "2 pods, 2 nodes: batch/batch-a, batch/batch-b",
        "2 nodes: batch/batch-a",
    )
