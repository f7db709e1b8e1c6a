"""What `makeway why` shows to a user of one namespace."""

import json

import msgspec

from makeway.cli.history.story import Story
from makeway.cli.why.command import _lines
from makeway.cli.why.explanation import Explanation
from makeway.cli.why.redaction import Redaction
from unit.evictor.building import make_order, make_preemptor, make_victim


def explained() -> Explanation:
    """A pod of shop that had to go with others, for a pod of another namespace."""
    victims = [
        msgspec.structs.replace(make_victim(name), namespace=namespace)
        for name, namespace in (("cart", "shop"), ("ledger", "bank"), ("vault-0", "bank-of-x"))
    ]
    preemptor = msgspec.structs.replace(make_preemptor(), namespace="research", name="secret-model")
    order = msgspec.structs.replace(make_order(*victims), preemptor=preemptor)
    story = Story(order=order, outcome=None, decision=None)
    return Explanation(
        state="preempted",
        namespace="shop",
        name="cart",
        uid=victims[0].uid,
        taken_by=(story,),
        made_room=(),
        pending=None,
        last_decision=None,
    )


def test_a_user_of_one_namespace_reads_no_name_of_another() -> None:
    answer = explained()
    hidden = Redaction(answer, "shop")

    text = "\n".join(map(hidden.text, _lines(answer)))
    data = json.dumps(hidden.plain(msgspec.to_builtins(answer)))

    for name in ("secret-model", "research", "ledger", "vault-0", "bank"):
        assert name not in text
        assert name not in data
    assert "shop/cart" in text
    assert "for:   (another namespace) (priority" in text


def test_names_in_messages_are_hidden_whatever_else_the_message_says() -> None:
    hidden = Redaction(explained(), "shop")

    told = hidden.text(
        "1 of 3 victims stay: bank/ledger: PodDisruptionBudget bank/ledger-pdb; shop/cart went"
    )

    assert told == (
        "1 of 3 victims stay: (another namespace): PodDisruptionBudget (another namespace); shop/cart went"
    )


def test_a_namespace_that_a_rule_names_is_hidden_and_no_word_that_is_written_alike() -> None:
    hidden = Redaction(explained(), "shop")

    told = hidden.text("bank/ledger: protected; namespace bank is protected; a bank of namespace bankers")

    hides = "(another namespace)"
    assert told == f"{hides}: protected; namespace {hides} is protected; a bank of namespace bankers"


def test_nothing_is_hidden_where_no_other_namespace_is_named() -> None:
    assert Redaction({"namespace": "shop", "name": "a"}, "shop").text("shop/a bank/b") == "shop/a bank/b"
