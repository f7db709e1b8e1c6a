"""`makeway keys` against an API server in this process that keeps Secrets and ConfigMaps."""

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind
from makeway.cli.check.keys import judge, keys_result
from makeway.cli.check.place import CheckedCluster
from makeway.cli.connect.form import Form
from makeway.cli.keys.stores import OUTSIDE, PUBLISHED_AT, KindKeys
from makeway.runtime.kube import Api
from served import served
from unit.cli.test_connect import kubeconfig, makeway

ORDER = SigningKind.ORDER
OLD, NEW = (SigningKey.new() for _ in range(2))


def keys(current: SigningKey | None, *public: SigningKey) -> KindKeys:
    pems = {one.key_id: one.public_pem() for one in public}
    return KindKeys(ORDER, current, pems)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (keys(NEW, OLD, NEW), "--finish"),
        (keys(None, OLD), "no private key"),
        (keys(NEW, OLD), "no private key goes with"),
    ],
    ids=["before the end of the last", "lost", "not published"],
)
def test_a_rotation_that_needs_a_third_key_or_has_no_first_is_refused(found: KindKeys, why: str) -> None:
    assert why in found.refuses_another()
    assert not keys(OLD, OLD).refuses_another()


class Cluster:
    """Secrets and ConfigMaps by kind, namespace and name. `fails_after`: how many writes succeed."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.fails_after = 1000
        self.version = 0

    async def handle(self, request: web.Request) -> web.Response:
        _, _, _, _, namespace, kind, *name = request.path.split("/")
        if request.method != "GET":
            if not self.fails_after:
                return web.json_response({"message": "gone", "reason": "InternalError"}, status=500)
            self.fails_after -= 1
        if request.method == "POST":
            body = json.loads(await request.text())
            return self._stored((kind, namespace, body["metadata"]["name"]), body)
        where = (kind, namespace, name[0])
        found = self.objects.get(where)
        if found is None:
            return web.json_response({"message": "not found", "reason": "NotFound"}, status=404)
        if request.method in ("PATCH", "PUT"):
            body = json.loads(await request.text())
            if body["metadata"].pop("resourceVersion") != found["metadata"]["resourceVersion"]:
                return web.json_response({"message": "changed", "reason": "Conflict"}, status=409)
            return self._stored(where, body if request.method == "PUT" else _merged(found, body))
        return web.json_response(found)

    def _stored(self, where: tuple[str, str, str], body: dict[str, Any]) -> web.Response:
        self.version += 1
        body["metadata"] |= {
            "resourceVersion": str(self.version),
            "creationTimestamp": "2026-11-20T08:00:00Z",
        }
        self.objects[where] = body
        return web.json_response(body)

    def private(self, kind: str, secret: str) -> SigningKey:
        data = self.objects["secrets", "makeway-system", secret]["data"]
        return SigningKey.from_pem(b64decode(data[f"{kind}.pem"]))

    def in_use(self) -> dict[str, list[str]]:
        """The key ids by which each kind is signed."""
        parts = {"order": "planner", "control": "planner", "outcome": "evictor"}
        return {kind: [self.private(kind, f"makeway-signing-{part}").key_id] for kind, part in parts.items()}

    def time_passes(self, span: timedelta) -> None:
        noted = self.objects["configmaps", "makeway-system", "makeway-keys"]["metadata"]["annotations"]
        noted[PUBLISHED_AT] = (datetime.fromisoformat(noted[PUBLISHED_AT]) - span).isoformat()

    def public(self) -> dict[str, list[str]]:
        return PublicKeys.parse(self.objects["configmaps", "makeway-system", "makeway-keys"]["data"]).ids()


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        merged[name] = _merged(merged.get(name), value)
    return {name: value for name, value in merged.items() if value is not None}


@asynccontextmanager
async def serving(cluster: Cluster) -> AsyncIterator[str]:
    async with served(cluster.handle) as port:
        yield f"http://127.0.0.1:{port}"


async def run(
    cluster: Cluster, directory: Path, *arguments: str, exits: int | None = None
) -> tuple[int, str, str]:
    async with serving(cluster) as url:
        return await makeway("keys", *arguments, f"--kubeconfig={kubeconfig(directory, url)}", exits=exits)


async def made(tmp_path: Path, *arguments: str) -> Cluster:
    cluster = Cluster()
    await run(cluster, tmp_path, "new", *arguments, exits=0)
    return cluster


async def test_each_part_has_a_secret_of_its_own_keys_and_all_public_keys_count(tmp_path: Path) -> None:
    cluster = await made(tmp_path)

    held = {
        (namespace, name): set(one["data"])
        for (kind, namespace, name), one in cluster.objects.items()
        if kind == "secrets"
    }
    assert held == {
        ("makeway-system", "makeway-signing-planner"): {"order.pem", "control.pem"},
        ("makeway-system", "makeway-signing-evictor"): {"outcome.pem"},
    }
    assert cluster.public() == cluster.in_use()


async def test_a_rotation_without_keys_says_that_there_are_none(tmp_path: Path) -> None:
    for arguments in (("rotate",), ("rotate", "--finish")):
        _, _, err = await run(Cluster(), tmp_path, *arguments, exits=1)

        assert "there are no keys in makeway-system: `makeway keys new` makes them" in err


async def test_new_keys_are_refused_where_there_are_some_and_replaced_only_when_told(tmp_path: Path) -> None:
    cluster = await made(tmp_path)
    before = cluster.public()

    code, _, err = await run(cluster, tmp_path, "new")
    assert (code, cluster.public()) == (1, before)
    assert "there are keys already" in err
    code, _, err = await run(cluster, tmp_path, "new", "--replace", "--kind=order")
    assert (code, cluster.public()) == (2, before)
    assert "nothing was changed; give --yes" in err

    await run(cluster, tmp_path, "new", "--replace", "--kind=order", "--yes", exits=0)
    after = cluster.public()
    assert {kind for kind in after if after[kind] != before[kind]} == {"order"}
    assert after["order"] == [cluster.private("order", "makeway-signing-planner").key_id]


async def test_a_lost_private_key_is_named_and_replaced_only_when_told(tmp_path: Path) -> None:
    cluster = await made(tmp_path)
    del cluster.objects["secrets", "makeway-system", "makeway-signing-evictor"]

    _, _, err = await run(cluster, tmp_path, "new", exits=1)

    assert "there are public keys of outcome, and not the private key that goes with them" in err


@pytest.mark.parametrize("where", ["secret", "no text", "configmap"])
async def test_an_entry_that_is_no_key_stops_all_but_its_replacement(tmp_path: Path, where: str) -> None:
    cluster = await made(tmp_path)
    secret = cluster.objects["secrets", "makeway-system", "makeway-signing-planner"]["data"]
    public = cluster.objects["configmaps", "makeway-system", "makeway-keys"]["data"]
    if where != "configmap":
        secret["order.pem"] = b64encode(b"junk" if where == "secret" else b"0\x82\xff").decode()
        what = "Secret makeway-system/makeway-signing-planner: order.pem: not an unencrypted private key"
    else:
        public["order.pem"] = public["order.pem"].replace("M", "!")
        what = "ConfigMap makeway-system/makeway-keys: order.pem: not a public key"
    before = deepcopy(cluster.objects)

    for arguments in (["new"], ["rotate"], ["rotate", "--finish"]):
        code, _, err = await run(cluster, tmp_path, *arguments)
        assert (code, cluster.objects) == (1, before)
        assert what in " ".join(err.split())
        assert "makeway keys new --replace --kind order" in " ".join(err.split())

    await run(cluster, tmp_path, "new", "--replace", "--kind=order", "--yes", exits=0)

    assert cluster.in_use() == cluster.public()
    others = before["secrets", "makeway-system", "makeway-signing-planner"]["data"]
    now = cluster.objects["secrets", "makeway-system", "makeway-signing-planner"]["data"]
    assert now["control.pem"] == others["control.pem"]


@pytest.mark.parametrize("writes", range(3))
async def test_what_a_broken_off_call_has_left_out_is_made(tmp_path: Path, writes: int) -> None:
    cluster = Cluster()
    cluster.fails_after = writes
    await run(cluster, tmp_path, "new", exits=1)

    cluster.fails_after = 1000
    await run(cluster, tmp_path, "new", exits=0)

    assert cluster.in_use() == cluster.public()


async def test_a_rotation_keeps_the_old_key_until_it_is_finished(tmp_path: Path) -> None:
    cluster = await made(tmp_path)
    before = cluster.public()

    _, out, _ = await run(cluster, tmp_path, "rotate", exits=0)

    assert out.count("is put in use") == 3
    after = cluster.public()
    assert all(len(after[kind]) == 2 and before[kind][0] in after[kind] for kind in after)
    used = cluster.private("control", "makeway-signing-planner").key_id
    assert used in after["control"]
    assert used not in before["control"]
    code, _, err = await run(cluster, tmp_path, "rotate")
    assert (code, cluster.public()) == (1, after)
    assert "there are 2 public keys already" in err
    code, _, err = await run(cluster, tmp_path, "rotate", "--finish")
    assert (code, cluster.public()) == (1, after)
    assert "may still be on their way" in err
    cluster.time_passes(timedelta(minutes=15))

    _, out, _ = await run(cluster, tmp_path, "rotate", "--finish", exits=0)

    assert out.count("counts no more") == 3
    assert cluster.public()["control"] == [used]
    code, out, err = await run(cluster, tmp_path, "rotate", "--finish")
    assert (code, out) == (0, "there is no old key to drop\n")


@pytest.mark.parametrize("writes", range(3))
async def test_what_a_rotation_that_is_broken_off_at_any_write_signs_counts_and_it_can_be_finished(
    tmp_path: Path, writes: int
) -> None:
    cluster = await made(tmp_path)
    cluster.fails_after = writes
    code, _, _ = await run(cluster, tmp_path, "rotate")
    assert code == 1
    assert all(used[0] in cluster.public()[kind] for kind, used in cluster.in_use().items())

    cluster.fails_after = 1000
    cluster.time_passes(timedelta(minutes=15))
    for again in (["--finish"], []):
        await run(cluster, tmp_path, "rotate", *again, exits=0)

    public = cluster.public()
    assert all(len(public[kind]) == 2 and used[0] in public[kind] for kind, used in cluster.in_use().items())


async def test_manifests_are_printed_for_git_and_nothing_is_written(tmp_path: Path) -> None:
    _, out, _ = await makeway("keys", "new", "--output=yaml", "--makeway-namespace=mw", exits=0)

    *secrets, public = yaml.safe_load_all(out)
    assert [one["metadata"]["namespace"] for one in (*secrets, public)] == ["mw"] * 3
    assert public["metadata"]["name"] == "makeway-keys"
    ids = PublicKeys.parse(public["data"]).ids()
    for secret in secrets:
        for name, value in secret["data"].items():
            assert SigningKey.from_pem(b64decode(value)).key_id in ids[name.removesuffix(".pem")]


def test_check_names_a_key_in_use_that_no_part_takes() -> None:
    others = [
        KindKeys(kind, OLD, {OLD.key_id: OLD.public_pem()}) for kind in SigningKind if kind is not ORDER
    ]

    wrong = judge([keys(NEW, OLD), *others])
    assert wrong.state == "wrong"
    assert f"lacks the key in use of order {NEW.key_id}" in wrong.detail
    assert judge([keys(None), *others]).state == "wrong"
    broken = judge([KindKeys(ORDER, unreadable="Secret a/b: order.pem: no key"), *others])
    assert (broken.state, broken.detail) == ("wrong", "Secret a/b: order.pem: no key")
    assert broken.remedy.endswith("makeway keys new --replace --kind order")


def test_check_reminds_of_a_rotation_and_of_a_key_that_no_secret_has() -> None:
    others = [
        KindKeys(kind, OLD, {OLD.key_id: OLD.public_pem()}) for kind in SigningKind if kind is not ORDER
    ]

    good = judge([keys(OLD, OLD), *others])
    assert (good.state, good.detail) == ("ok", ", ".join(f"{kind} {OLD.key_id}" for kind in SigningKind))
    assert judge([keys(None, OLD), *others]).state == "warning"
    rotating = judge([keys(NEW, OLD, NEW), *others])
    both = f"order {OLD.key_id} and {NEW.key_id} (in use)"
    assert (rotating.state, rotating.detail) == ("warning", f"a rotation is not finished: {both}")
    lost = judge([keys(OLD, OLD), KindKeys(SigningKind.OUTCOME, None, {"a": "b"})])
    assert "no Secret holds the private key of outcome" in lost.detail


async def test_check_does_not_remind_of_keys_that_are_kept_outside_of_the_cluster(tmp_path: Path) -> None:
    cluster = await made(tmp_path)
    for where in [where for where in cluster.objects if where[0] == "secrets"]:
        del cluster.objects[where]
    stored = cluster.objects["configmaps", "makeway-system", "makeway-keys"]
    stored["metadata"]["annotations"][OUTSIDE] = "true"

    async with serving(cluster) as url:
        api = await Api.connect(kubeconfig=str(kubeconfig(tmp_path, url)), user_agent="test")
        said = await keys_result(CheckedCluster(api, "makeway-system", Form(), replaced=False))
        await api.close()

    named = ", ".join(f"{kind} {ids[0]}" for kind, ids in cluster.public().items())
    assert (said.state, said.detail) == ("ok", f"{named}; the private ones are outside of the cluster")
    assert judge([KindKeys(SigningKind.ORDER)], outside=True).state == "wrong"
