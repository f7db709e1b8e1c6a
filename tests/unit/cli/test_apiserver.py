"""The aggregated API server: who asks, what is asked, how often, and within which bounds it is answered."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import pytest

from makeway.cli.apiserver.answering import Answerer, Bounds, told
from makeway.cli.apiserver.front_proxy import FrontProxy, User, common_name, front_proxy_of, user_of
from makeway.cli.apiserver.limits import MOST_USERS, TurnLimits, Turns, account_of
from makeway.cli.apiserver.question import (
    ROOT,
    NoQuestion,
    TenantQuestion,
    group,
    question_of,
    resources,
)
from makeway.cli.check.questions import judge

CONFIGMAP = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["Front-Proxy"]',
    "requestheader-username-headers": '["X-Remote-User", "X-Other-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
}
POD = {"kind": "Pod", "metadata": {"name": "a"}}


def proxy() -> FrontProxy:
    return front_proxy_of(CONFIGMAP)


def test_the_front_proxy_names_a_user_with_groups_and_extra() -> None:
    headers = [
        ("X-Remote-User", "jane"),
        ("X-Remote-Group", "a"),
        ("x-remote-group", "b"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Extra-Example.com%2fScopes", "one"),
        ("X-Remote-Extra-Example.com%2fscopes", "two"),
        ("Authorization", "Bearer x"),
    ]

    assert user_of(proxy(), "Front-Proxy", headers) == User(
        "jane", ("a", "b"), "7", {"example.com/scopes": ("one", "two")}
    )


def test_another_certificate_of_the_authority_names_no_user() -> None:
    headers = [("X-Remote-User", "admin")]

    assert user_of(proxy(), "someone", headers) is None
    assert user_of(proxy(), "", headers) is None
    assert user_of(proxy(), "Front-Proxy", [("X-Remote-Group", "system:masters")]) is None


@pytest.mark.parametrize(
    "broken", [{"requestheader-client-ca-file": ""}, {"requestheader-username-headers": "X-Remote-User"}]
)
def test_a_cluster_without_an_aggregation_layer_is_told_so(broken: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="request"):
        front_proxy_of({**CONFIGMAP, **broken})


def test_the_common_name_is_read_from_the_certificate_as_python_has_it() -> None:
    certificate = {"subject": ((("organizationName", "o"),), (("commonName", "front"),))}

    assert common_name(certificate) == "front"
    assert common_name(None) == ""


def ask(method: str, path: str, body: object = None) -> TenantQuestion:
    return question_of(method, f"{ROOT}/namespaces/{path}", json.dumps(body).encode() if body else b"")


def test_a_question_takes_the_right_to_get_the_pod_or_the_pods_of_the_namespace() -> None:
    why = ask("GET", "ord-1/explanations/web-0.x")
    simulated = ask("POST", "shop/simulations", POD)

    assert why.right()["name"] == "web-0.x"
    assert why.command() == ["why", "pod/ord-1/web-0.x", "-o", "json"]
    assert simulated.right() == {"namespace": "shop", "verb": "get", "version": "v1", "resource": "pods"}
    assert simulated.command()[:5] == ["simulate", "-f", "-", "-n", "shop"]
    assert ask("GET", "shop/queues/root.ml_1").name == "root.ml_1"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "shop/explanations", 404),
        ("GET", "shop/explanations/--kubeconfig", 404),
        ("GET", "shop/explanations/a/b", 404),
        ("GET", "Shop/explanations/a", 404),
        ("GET", "shop/explanations/a%2fb", 404),
        ("GET", "../explanations/a", 404),
        ("GET", "shop/pods/a", 404),
        ("DELETE", "shop/explanations/a", 405),
        ("GET", "shop/simulations", 405),
        ("POST", "shop/simulations/a", 404),
    ],
)
def test_what_is_no_question_is_refused(method: str, path: str, status: int) -> None:
    with pytest.raises(NoQuestion) as refused:
        ask(method, path)

    assert refused.value.status == status


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "Pod", "metadata": {"namespace": "bank"}}, 403),
        (
            {
                "kind": "List",
                "items": [POD, {"kind": "PodList", "items": [{"metadata": {"namespace": "bank"}}]}],
            },
            403,
        ),
        ([POD], 400),
        ({"kind": "List", "items": [1]}, 400),
    ],
)
def test_manifests_of_another_namespace_are_refused_wherever_they_stand(body: object, status: int) -> None:
    with pytest.raises(NoQuestion) as refused:
        ask("POST", "shop/simulations", body)

    assert refused.value.status == status


def near(**term: object) -> dict[str, object]:
    """A pod that must run beside others, as a term says."""
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return {**POD, "spec": {"affinity": affinity}}


@pytest.mark.parametrize("elsewhere", [{"namespaces": ["shop", "bank"]}, {"namespaceSelector": {}}])
def test_a_pod_is_not_simulated_beside_pods_of_other_namespaces(elsewhere: dict[str, object]) -> None:
    pod = near(topologyKey="kubernetes.io/hostname", **elsewhere)
    template = {"kind": "Deployment", "spec": {"template": pod}}

    for body in (pod, {"kind": "List", "items": [template]}):
        with pytest.raises(NoQuestion, match="affinity") as refused:
            ask("POST", "shop/simulations", body)
        assert refused.value.status == 403


def test_a_pod_is_simulated_beside_pods_of_its_own_namespace() -> None:
    body = {
        "kind": "List",
        "items": [near(topologyKey="zone"), near(topologyKey="zone", namespaces=["shop"])],
    }

    assert json.loads(ask("POST", "shop/simulations", body).body) == body


def test_of_a_key_that_stands_twice_the_one_that_was_judged_is_read() -> None:
    body = b'{"kind": "Pod", "metadata": {"namespace": "bank"}, "metadata": {"namespace": "shop"}}'

    question = question_of("POST", f"{ROOT}/namespaces/shop/simulations", body)

    assert b"bank" not in question.body


def test_deep_json_is_refused_and_ends_nothing() -> None:
    with pytest.raises(NoQuestion):
        question_of("POST", f"{ROOT}/namespaces/shop/simulations", b"[" * 100_000)


def test_nothing_of_the_group_can_be_listed() -> None:
    verbs = {verb for one in resources()["resources"] for verb in one["verbs"]}

    assert verbs == {"get", "create"}
    assert group()["preferredVersion"]["groupVersion"] == "ask.makeway.dev/v1"


def test_a_user_has_one_question_at_a_time_and_some_a_minute() -> None:
    turns = Turns(TurnLimits(per_minute=6, burst=2, running=5, waiting=0))

    assert turns.take("a", 0.0) == 0
    assert turns.take("a", 0.0) > 0, "one at a time"
    assert turns.take("b", 0.0) == 0, "others are not held up"
    turns.end("a")
    assert turns.take("a", 0.0) == 0
    turns.end("a")
    assert turns.take("a", 0.0) == pytest.approx(10.0)
    assert turns.take("a", 5.0) == pytest.approx(5.0)
    assert turns.take("a", 10.0) == 0


def test_service_accounts_of_a_namespace_are_counted_as_one_user() -> None:
    accounts = [account_of(f"system:serviceaccount:{one}") for one in ("shop:a", "shop:b", "bank:a")]

    assert accounts[0] == accounts[1] != accounts[2]
    assert account_of("jane:shop:a") == "jane:shop:a"


def test_all_users_together_are_bounded() -> None:
    turns = Turns(TurnLimits(running=1, waiting=1))

    assert [turns.take(user, 0.0) for user in "abc"] == [0, 0, 1]
    turns.end("a")
    assert turns.take("c", 0.0) == 0


def test_no_more_users_are_remembered_than_there_may_be_and_none_who_is_being_answered_is_forgotten() -> None:
    turns = Turns(TurnLimits(running=MOST_USERS))
    turns.take("busy", 0.0)
    for number in range(MOST_USERS + 100):
        turns.take(str(number), 0.0)
        turns.end(str(number))

    assert len(turns._accounts) == MOST_USERS
    assert turns.take("busy", 0.0) > 0


WHY = TenantQuestion("explanations", "shop", "cart")


def answerer(code: str, **bounds: float) -> Answerer:
    return Answerer({}, Bounds(**bounds), (sys.executable, "-c", code))  # type: ignore[arg-type] # mixed numbers


async def test_a_question_that_takes_too_long_is_ended_with_its_process() -> None:
    started = time.monotonic()

    answer = await answerer("import time; time.sleep(60)", seconds=0.5).answer(WHY)

    assert answer.status == 504
    assert time.monotonic() - started < 30


async def test_an_answer_without_end_is_cut_off() -> None:
    answer = await answerer("while True: print('x' * 10_000)", answer_bytes=100_000).answer(WHY)

    assert answer.status == 413


async def test_a_body_that_is_not_read_holds_nothing_up() -> None:
    question = TenantQuestion("simulations", "shop", body=b"x" * 1_000_000)

    answer = await answerer(
        "import sys; print('makeway: bank/x is wrong', file=sys.stderr); sys.exit(1)"
    ).answer(question)

    assert (answer.status, answer.message) == (400, "(another namespace) is wrong")


async def test_cancelling_ends_the_process() -> None:
    task = asyncio.create_task(answerer("import time; time.sleep(60)").answer(WHY))
    await asyncio.sleep(0.3)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_makeway_itself_cannot_do_is_not_told_in_its_words() -> None:
    answer = told(WHY, 3, b"", b"makeway: no permission: bank/secret\n", Bounds())

    assert answer.status == 503
    assert "bank" not in answer.message
    assert "bank/secret" in answer.log


def test_what_was_not_expected_is_the_operators_to_know_and_no_fault_of_the_tenants() -> None:
    traceback = b"Traceback (most recent call last):\n  File x\nKeyError: 'uid-of-ledger'\n"

    answer = told(WHY, 1, b"", traceback, Bounds())

    assert answer.status == 503
    assert "ledger" not in answer.message
    assert "KeyError" in answer.log


def test_the_child_keeps_to_the_memory_that_it_was_given() -> None:
    code = (
        "import os; from makeway.cli.apiserver.bounds import bound, MEMORY; "
        "bound({MEMORY: str(200 << 20)}); bytearray(300 << 20)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "MemoryError" in done.stderr


def test_check_says_what_an_unavailable_api_keeps_from_happening() -> None:
    assert judge("True", "").state == "ok"
    wrong = judge("False", "no response from https://10.0.0.1")
    assert wrong.state == "wrong"
    assert "no namespace is deleted" in wrong.detail
    assert "10.0.0.1" in wrong.detail
