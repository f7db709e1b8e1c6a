"""What real clusters were answered comes out again, and their orders follow from it."""

from functools import cache

from makeway.bus.codec import unwrap_order, wrap
from makeway.bus.messages import EvictionOrder
from makeway.evictor.judge.decide import admit
from makeway.evictor.judge.fences import Fences
from makeway.planner.offline.replaying import differences
from referee.kept import Kept, Reply, answered, decided_in, load


@cache
def kept() -> Kept:
    return load()


def test_three_hundred_answers_and_orders_of_all_kinds_are_kept() -> None:
    records = [answer.record for answer in kept().answers.values()]

    assert len(records) >= 300
    assert {record.kind for record in records} == {"pod", "group", "quota"}
    assert {record.mode for record in records} >= {"enforce", "observe"}
    assert {order.kind for order in kept().orders} == {"pod", "group", "quota"}
    assert {order.is_external for order in kept().orders} == {True, False}


def test_every_request_is_answered_as_it_was() -> None:
    wrong, seen = {}, set()
    for parts in kept().parts:
        for _, replay, decided in decided_in(parts):
            expected = kept().answers.get(decided.decision_id)
            if expected is None:
                continue
            seen.add(decided.decision_id)
            found = answered(replay, decided)
            different = [
                (one.field, one.recorded, one.replayed) for one in differences(expected.record, found.record)
            ]
            if different or found.reply != expected.reply:
                wrong[decided.decision_id] = different or [("reply", expected.reply, found.reply)]

    assert seen == kept().answers.keys()
    assert not wrong


def test_every_order_follows_from_the_reply_to_its_request() -> None:
    for order in kept().orders:
        answer = kept().answers[order.decision_id]
        victims = {victim.uid for victim in order.victims}
        if order.kind == "quota":
            assert victims <= {victim.uid for victim in answer.record.victims}
        else:
            assert victims <= _removable(answer.reply, order), order.order_id


def test_every_order_is_read_and_admitted_by_the_evictor() -> None:
    for order in kept().orders:
        assert unwrap_order(wrap(order, order.writer)) == order
        assert (
            admit(order, cluster_uid=order.cluster_uid, now=order.created_at, fences=_fences(order)) is None
        )


def _removable(reply: Reply, order: EvictionOrder) -> set[str]:
    """Return the pods that the reply lets go for the order's node, or for the group."""
    if order.kind == "group":
        return {victim["uid"] for victim in reply["plan"]["victims"]}
    candidates = [*reply.get("candidates", ()), *reply.get("unmodelled", ())]
    if reply.get("sample"):
        candidates.append(reply["sample"])
    return {pod["uid"] for one in candidates if one["node"] == order.node for pod in one.get("removable", ())}


def _fences(order: EvictionOrder) -> Fences:
    """Return those of an installation that the order's writer belongs to."""
    fence = order.fence
    written = (
        f"{fence.kind}/{fence.namespace}/{fence.name}" if fence.namespace else f"{fence.kind}/{fence.name}"
    )
    return Fences.of((written,), (written,), (written,))
