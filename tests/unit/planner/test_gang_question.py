"""The question about a group, from the message."""

import msgspec
import pytest

from makeway.bus import codec
from makeway.bus.errors import Malformed
from makeway.bus.plan import PlanRequest
from makeway.core.k8s.quantity import QuantityError
from makeway.dev.samples import MESSAGES
from makeway.planner.plan.gang.question import alike, gang_question_of, labels_named
from makeway.planner.plan.request import NamelessPodError
from narrowing import there
from unit.planner.manifests import anti_affinity, pod, question, term


def request() -> PlanRequest:
    message = MESSAGES["plan-request.group"]
    assert isinstance(message, PlanRequest)
    return message


def test_every_class_asks_at_the_priority_of_the_group() -> None:
    asked = msgspec.structs.replace(
        request(), group=msgspec.structs.replace(there(request().group), priority=7), must_place=5
    )

    question = gang_question_of(asked, {"leaving": "ord-1"})

    assert [one.count for one in question.classes] == [1, 6, 1]
    assert (question.total, question.must_place) == (8, 5)
    for one, sent in zip(question.classes, asked.classes, strict=True):
        assert one.question.preemptor.priority == 7
        assert one.question.nodes == asked.nodes_of(sent)
        assert one.question.in_flight == {"leaving": "ord-1"}


def test_a_class_has_its_nodes_from_the_class_that_it_names() -> None:
    asked = request()
    assert asked.classes[2].same_nodes_as == 1

    question = gang_question_of(asked, {})

    assert question.classes[2].question.nodes == asked.classes[1].nodes
    assert question.classes[2].question.nodes.names


@pytest.mark.parametrize("named", [2, 15])
def test_a_class_that_names_no_class_before_it_is_refused(named: int) -> None:
    asked = request()
    last = msgspec.structs.replace(asked.classes[2], same_nodes_as=named)
    data = codec.encode(asked).replace(b'"sameNodesAs":1', b'"sameNodesAs":%d' % named)
    assert b'"sameNodesAs":%d' % named in data

    with pytest.raises(Malformed, match="sameNodesAs"):
        codec.decode(PlanRequest, data)
    with pytest.raises(ValueError, match="sameNodesAs"):
        msgspec.structs.replace(asked, classes=(*asked.classes[:2], last))


def test_a_class_that_cannot_be_counted_is_an_error() -> None:
    first = request().classes[0]
    broken = msgspec.Raw(bytes(first.pod).replace(b'"2"', b'"two"'))
    asked = msgspec.structs.replace(request(), classes=(msgspec.structs.replace(first, pod=broken),))

    with pytest.raises(QuantityError):
        gang_question_of(asked, {})


def test_a_request_without_a_class_of_members_names_no_pod() -> None:
    with pytest.raises(NamelessPodError, match="no class"):
        gang_question_of(msgspec.structs.replace(request(), classes=()), {})


def test_members_that_differ_by_an_index_are_of_one_kind() -> None:
    """As the plugin has it: labels count that a rule of any member looks at, and those that name a queue."""
    apart = anti_affinity(term("rack", {"job": "train"}))
    labels = {"a": {"job": "train", "index": "0"}, "b": {"job": "train", "index": "1"}, "c": {"job": "other"}}
    asked = {name: question(pod(name, labels=one, affinity=apart)) for name, one in labels.items()}
    asked["d"] = question(pod("d", labels={"job": "train", "queue": "root.a"}, affinity=apart))

    named = frozenset[str]().union(*map(labels_named, asked.values()))

    assert alike(asked["a"], named) == alike(asked["b"], named)
    assert len({alike(one, named) for one in asked.values()}) == 3
