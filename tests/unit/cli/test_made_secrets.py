"""Secrets that are made in the cluster: complete, kept, and made again as they were."""

import asyncio
import json
import ssl
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from makeway.bus.signing.keys import PublicKeys, SigningKey, SigningKind
from makeway.cli.check.cluster import judge_secrets as judge
from makeway.cli.check.cluster import secrets_results
from makeway.cli.check.place import CheckedCluster
from makeway.cli.connect.form import Form
from makeway.cli.keys import keeping
from makeway.cli.keys.keeping import MADE_AGAIN, SecretsKeeper, written_login
from makeway.cli.keys.making import (
    AUTHORITY,
    PASSWORDS,
    SERVER,
    SecretContents,
    WantedSecrets,
    contents,
    login,
)
from makeway.cli.keys.stores import UNREADABLE, KeyStore
from makeway.core.k8s.objects import Metadata
from makeway.runtime.kube import Api
from makeway.runtime.settings import NatsSettings
from unit.cli.test_connect import kubeconfig
from unit.cli.test_keys import Cluster, serving

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
NAMESPACE = "preemption"
WANTED = WantedSecrets(
    NAMESPACE,
    users=("planner", "streams", "viewer", "consumer-audit"),
    certificate_days=30,
    signs=(SigningKind.ORDER, SigningKind.CONTROL, SigningKind.OUTCOME),
)
ALL = contents(WANTED, SecretContents(), NOW)
ENCRYPTED = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
)
CHOSEN = ("a\"b'c", "p@ss/w:ord?#", "with a blank ", "back\\slash", "12345", "100%25", "Gr\u00fc\u00dfe")
"""Passwords that a person may put into a login's Secret."""


def without(*names: str) -> SecretContents:
    return SecretContents({name: data for name, data in ALL.secrets.items() if name not in names}, ALL.public)


def test_each_login_has_a_password_of_its_own_which_nats_knows_too() -> None:
    passwords = {user: ALL.secrets[login(user)]["password"] for user in WANTED.users}

    assert len(set(passwords.values())) == len(WANTED.users)
    lines = ALL.secrets[PASSWORDS]["passwords.conf"].splitlines()
    assert lines[0] == f'PLANNER_PASSWORD: "{passwords["planner"]}"'
    assert lines[3] == f'CONSUMER_AUDIT_PASSWORD: "{passwords["consumer-audit"]}"'
    assert ALL.secrets[login("viewer")]["url"] == (
        f"nats://viewer:{passwords['viewer']}@makeway-nats.preemption.svc:4222"
    )


def test_every_certificate_is_of_one_authority_whose_key_no_login_has(tmp_path: Path) -> None:
    for name in (SERVER, *map(login, WANTED.users)):
        for key in ("ca.crt", "tls.crt", "tls.key"):
            (tmp_path / key).write_text(ALL.secrets[name][key])
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
        assert ALL.secrets[name]["ca.crt"] == ALL.secrets[AUTHORITY]["tls.crt"]
        assert ALL.secrets[AUTHORITY]["tls.key"] not in ALL.secrets[name].values()


def test_the_public_keys_are_those_of_what_each_part_signs_with() -> None:
    ids = PublicKeys.parse(ALL.public).ids()

    for kind, part in (("order", "planner"), ("control", "planner"), ("outcome", "evictor")):
        pem = ALL.secrets[f"makeway-signing-{part}"][f"{kind}.pem"]
        assert ids[kind] == [SigningKey.from_pem(pem.encode()).key_id]


def test_what_is_there_is_kept_to_the_last_byte() -> None:
    assert contents(WANTED, ALL, NOW) == ALL


@pytest.mark.parametrize("name", [login("planner"), PASSWORDS, SERVER])
def test_a_lost_secret_is_made_again_and_no_other_is_changed(name: str) -> None:
    again = contents(WANTED, without(name), NOW)

    assert {one: again.secrets[one] for one in ALL.secrets if one != name} == {
        one: data for one, data in ALL.secrets.items() if one != name
    }
    kept = {key for key in ALL.secrets[name] if not key.startswith("tls.")}
    assert {key: again.secrets[name][key] for key in kept} == {key: ALL.secrets[name][key] for key in kept}


def test_a_login_that_is_deleted_with_the_passwords_gets_another_and_no_other_login_does() -> None:
    again = contents(WANTED, without(login("planner"), PASSWORDS), NOW)

    changed = {
        user
        for user in WANTED.users
        if again.secrets[login(user)]["password"] != ALL.secrets[login(user)]["password"]
    }
    assert changed == {"planner"}
    assert again.secrets[login("planner")]["password"] in again.secrets[PASSWORDS]["passwords.conf"]


def test_a_lost_private_key_is_replaced_and_its_old_public_key_counts_no_more() -> None:
    again = contents(WANTED, without("makeway-signing-evictor"), NOW)

    before, after = PublicKeys.parse(ALL.public).ids(), PublicKeys.parse(again.public).ids()
    assert before["outcome"] != after["outcome"]
    assert len(after["outcome"]) == 1
    assert {**before, "outcome": ()} == {**after, "outcome": ()}


def test_a_rotation_that_is_under_way_is_left_alone() -> None:
    both = {**ALL.public, "outcome.pem": ALL.public["outcome.pem"] + SigningKey.new().public_pem()}

    assert contents(WANTED, SecretContents(ALL.secrets, both), NOW).public == both


def test_logins_of_an_older_chart_are_used_on_though_its_authority_was_thrown_away() -> None:
    old = without(AUTHORITY, PASSWORDS)

    again = contents(WANTED, old, NOW)

    assert {name: again.secrets[name] for name in old.secrets} == old.secrets
    assert again.secrets[AUTHORITY] == {}


def test_without_certificates_and_signatures_there_are_passwords_alone() -> None:
    made = contents(WantedSecrets(NAMESPACE, users=("viewer",)), SecretContents(), NOW)

    assert set(made.secrets) == {login("viewer"), PASSWORDS}
    assert set(made.secrets[login("viewer")]) == {"user", "password", "url"}
    assert made.public == {}


async def ensured(
    cluster: Cluster, directory: Path, wanted: WantedSecrets = WANTED, now: datetime = NOW
) -> SecretContents:
    async with serving(cluster) as url:
        api = await Api.connect(kubeconfig=str(kubeconfig(directory, url)), user_agent="test")
        try:
            return await SecretsKeeper(KeyStore(api, wanted.namespace), wanted).ensure(now)
        finally:
            await api.close()


def notes(cluster: Cluster) -> dict[str, dict[str, str]]:
    """The annotations of each Secret."""
    return {
        name: one["metadata"].get("annotations", {})
        for (kind, _, name), one in cluster.objects.items()
        if kind == "secrets"
    }


def stored(cluster: Cluster) -> set[str]:
    return {name for kind, namespace, name in cluster.objects if (kind, namespace) == ("secrets", NAMESPACE)}


async def test_all_of_it_is_stored_and_found_again(tmp_path: Path) -> None:
    cluster = Cluster()

    made = await ensured(cluster, tmp_path)
    writes = cluster.version

    assert (await ensured(cluster, tmp_path)).secrets == made.secrets
    assert stored(cluster) == set(WANTED.names)
    assert cluster.version == writes
    data = cluster.objects["secrets", NAMESPACE, login("viewer")]["data"]
    assert b64decode(data["user"]) == b"viewer"


async def test_what_broke_off_is_completed_and_a_lost_secret_is_marked_as_made_again(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.fails_after = 4
    await ensured(cluster, tmp_path)
    assert len(stored(cluster)) < len(WANTED.names)
    cluster.fails_after = 1000
    made = await ensured(cluster, tmp_path)
    assert MADE_AGAIN not in notes(cluster)[login("consumer-audit")]
    del cluster.objects["secrets", NAMESPACE, login("planner")]

    again = await ensured(cluster, tmp_path)

    assert again.secrets[login("planner")]["password"] == made.secrets[login("planner")]["password"]
    assert notes(cluster)[login("planner")] == {
        MADE_AGAIN: "2026-11-27T12:00:00Z",
        "helm.sh/resource-policy": "keep",
    }


async def test_the_login_of_a_part_that_comes_later_was_never_lost(tmp_path: Path) -> None:
    cluster = Cluster()
    await ensured(cluster, tmp_path)

    await ensured(cluster, tmp_path, replace(WANTED, users=(*WANTED.users, "evictor")))

    assert MADE_AGAIN not in notes(cluster)[login("evictor")]


async def test_what_an_older_chart_did_not_render_was_never_lost(tmp_path: Path) -> None:
    cluster = Cluster()
    await ensured(cluster, tmp_path)
    for name in (AUTHORITY, PASSWORDS):
        del cluster.objects["secrets", NAMESPACE, name]
    for name in (SERVER, *map(login, WANTED.users)):
        labels = cluster.objects["secrets", NAMESPACE, name]["metadata"]["labels"]
        labels["app.kubernetes.io/managed-by"] = "Helm"

    await ensured(cluster, tmp_path)
    due = NOW + timedelta(days=25)
    await ensured(cluster, tmp_path, now=due)

    assert not [name for name, noted in notes(cluster).items() if MADE_AGAIN in noted]
    assert {AUTHORITY, PASSWORDS} <= stored(cluster)


async def test_certificates_that_are_wanted_later_were_never_lost(tmp_path: Path) -> None:
    cluster = Cluster()
    await ensured(cluster, tmp_path, replace(WANTED, certificate_days=0))

    await ensured(cluster, tmp_path)

    assert not [name for name, noted in notes(cluster).items() if MADE_AGAIN in noted]


@pytest.mark.parametrize("name", [AUTHORITY, PASSWORDS, SERVER])
async def test_what_the_logins_show_to_have_been_there_is_made_again(tmp_path: Path, name: str) -> None:
    cluster = Cluster()
    await ensured(cluster, tmp_path)
    del cluster.objects["secrets", NAMESPACE, name]

    await ensured(cluster, tmp_path, now=NOW + timedelta(days=25))

    assert [one for one, noted in notes(cluster).items() if MADE_AGAIN in noted] == [name]


async def test_no_private_key_is_stored_whose_public_key_was_refused(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.fails_after = 0

    await ensured(cluster, tmp_path)
    cluster.fails_after = len(WANTED.users)
    await ensured(cluster, tmp_path)

    assert ("configmaps", NAMESPACE, "makeway-keys") in cluster.objects
    assert not [name for name in stored(cluster) if name.startswith("makeway-signing-")]


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("makeway-signing-evictor", "outcome.pem", b"no key"),
        (AUTHORITY, "tls.crt", b"no certificate"),
        (AUTHORITY, "tls.key", ENCRYPTED),
        (AUTHORITY, "tls.key", ALL.secrets[SERVER]["tls.key"].encode()),
        (login("viewer"), "tls.key", b"no key"),
        (login("viewer"), "tls.crt", b"no certificate"),
        (login("viewer"), "password", b"\xff"),
        (login("viewer"), "password", b"of-a-file\n"),
        (login("viewer"), "password", b"$2a$11$WXyY/3dQmuaOzpvjrs2e1.kHsDWpyZ3RULvnxz1EWHM1WGRDWuMXy"),
    ],
)
async def test_what_cannot_be_read_is_named_and_left_and_all_else_is_made(
    tmp_path: Path, name: str, key: str, value: bytes
) -> None:
    cluster = Cluster()
    before = await ensured(cluster, tmp_path)
    held = cluster.objects["secrets", NAMESPACE, name]["data"]
    good, held[key] = held[key], b64encode(value).decode()
    bad = dict(held)
    del cluster.objects["secrets", NAMESPACE, login("planner")]
    del cluster.objects["secrets", NAMESPACE, "makeway-signing-planner"]

    made = await ensured(cluster, tmp_path)

    assert list(made.unreadable) == [name]
    assert cluster.objects["secrets", NAMESPACE, name]["data"] == bad
    (result,) = judge([Metadata(name=one, annotations=found) for one, found in notes(cluster).items()])
    assert (result.state, result.detail.split(" (")[0]) == ("wrong", f"unreadable: {name}")
    assert made.secrets[login("planner")]["password"] == before.secrets[login("planner")]["password"]
    assert "makeway-signing-planner" in stored(cluster)
    writes = cluster.version
    await ensured(cluster, tmp_path)
    assert cluster.version == writes, "nothing is written again"

    held = cluster.objects["secrets", NAMESPACE, name]["data"]
    held[key] = good
    assert not (await ensured(cluster, tmp_path)).unreadable
    assert not [one for one in notes(cluster).values() if UNREADABLE in one]


async def test_a_secret_that_the_api_server_refuses_does_not_stop_the_others(tmp_path: Path) -> None:
    class _Forbids(Cluster):
        async def handle(self, request: web.Request) -> web.Response:
            if request.path.endswith(f"/{login('viewer')}"):
                return web.json_response({"message": "no", "reason": "Forbidden"}, status=403)
            return await super().handle(request)

    cluster = _Forbids()

    made = await ensured(cluster, tmp_path)

    assert list(made.unreadable) == [login("viewer")]
    assert stored(cluster) == set(WANTED.names) - {login("viewer")}
    assert "VIEWER_PASSWORD" in made.secrets[PASSWORDS]["passwords.conf"], "NATS starts without it"


class Refuses(Cluster):
    """An API server that stores nothing under a name."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name = name

    async def handle(self, request: web.Request) -> web.Response:
        writes = request.method in ("POST", "PUT") and json.loads(await request.text())
        if writes and writes["metadata"]["name"] == self.name:
            return web.json_response({"message": "immutable", "reason": "Invalid"}, status=422)
        return await super().handle(request)


async def test_what_is_not_stored_is_no_login_yet(tmp_path: Path) -> None:
    made = await ensured(Refuses(login("streams")), tmp_path)

    assert login("streams") not in made.secrets
    assert login("viewer") in made.secrets


async def test_no_empty_secret_is_made_as_pods_would_not_wait_for_its_keys(tmp_path: Path) -> None:
    cluster = Cluster()
    await ensured(cluster, tmp_path)
    keys = cluster.objects["configmaps", NAMESPACE, "makeway-keys"]["data"]
    good = dict(keys)
    keys["order.pem"] = "no key"
    del cluster.objects["secrets", NAMESPACE, "makeway-signing-evictor"]

    made = await ensured(cluster, tmp_path)

    assert list(made.unreadable) == ["makeway-keys"]
    assert "makeway-signing-evictor" not in stored(cluster)
    keys |= good
    await ensured(cluster, tmp_path)
    assert MADE_AGAIN in notes(cluster)["makeway-signing-evictor"]


def chosen(password: str) -> SecretContents:
    """All of it, with a password for the viewer that a person chose."""
    data = {**ALL.secrets[login("viewer")], "password": password}
    return contents(WANTED, SecretContents({**ALL.secrets, login("viewer"): data}, ALL.public), NOW)


@pytest.mark.parametrize("password", CHOSEN)
def test_a_password_of_a_persons_choice_is_in_the_url_and_the_file_as_it_is(password: str) -> None:
    made = chosen(password)

    assert unquote(urlsplit(made.secrets[login("viewer")]["url"]).password or "") == password
    assert contents(WANTED, made, NOW) == made
    lost_login = {name: data for name, data in made.secrets.items() if name != login("viewer")}
    again = contents(WANTED, SecretContents(lost_login, made.public), NOW)
    assert again.secrets[login("viewer")]["password"] == password


async def test_what_helm_has_made_stays_helms(tmp_path: Path) -> None:
    cluster = Cluster()
    await ensured(cluster, tmp_path)
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    cluster.objects["secrets", NAMESPACE, PASSWORDS]["metadata"]["labels"] = labels

    await ensured(cluster, tmp_path, replace(WANTED, users=(*WANTED.users, "evictor")))

    found = cluster.objects["secrets", NAMESPACE, PASSWORDS]
    assert found["metadata"]["labels"] == labels
    assert b"EVICTOR_PASSWORD" in b64decode(found["data"]["passwords.conf"])


def test_the_streams_own_login_is_written_for_it_alone(tmp_path: Path) -> None:
    nats = written_login(NatsSettings(url="nats://n:4222"), ALL, tmp_path / "login")

    assert nats.user == "streams"
    assert nats.password_file is not None
    assert nats.password_file.read_text() == ALL.secrets[login("streams")]["password"]
    assert nats.password_file.stat().st_mode & 0o077 == 0
    assert nats.tls() is not None


def test_a_login_that_was_made_again_is_written_over_the_one_before(tmp_path: Path) -> None:
    before = written_login(NatsSettings(), ALL, tmp_path)
    again = contents(WANTED, without(AUTHORITY, SERVER), NOW)

    assert written_login(NatsSettings(), again, tmp_path) == before

    for name in ("ca.crt", "tls.crt", "tls.key"):
        assert (tmp_path / name).read_text() == again.secrets[login("streams")][name]
        assert (tmp_path / name).read_text() != ALL.secrets[login("streams")][name]


async def test_who_keeps_the_secrets_gives_what_is_there_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_LOOK_SECONDS", 0.01)
    given: asyncio.Queue[SecretContents] = asyncio.Queue()
    async with serving(Cluster()) as url:
        api = await Api.connect(kubeconfig=str(kubeconfig(tmp_path, url)), user_agent="test")
        keeper = SecretsKeeper(KeyStore(api, WANTED.namespace), WANTED)
        made = await keeper.begin()
        keeping_task = asyncio.create_task(keeper.keep(given.put_nowait))
        try:
            assert (await asyncio.wait_for(given.get(), 30)).secrets == made.secrets
        finally:
            keeping_task.cancel()
            await asyncio.gather(keeping_task, return_exceptions=True)
            await api.close()


def test_certificates_of_your_own_are_used_in_place_of_those_that_are_made(tmp_path: Path) -> None:
    own = NatsSettings(tls_ca=Path("/own/ca"), tls_cert=Path("/own/crt"), tls_key=Path("/own/key"))

    nats = written_login(own, ALL, tmp_path)

    assert (nats.tls_ca, nats.tls_cert, nats.tls_key) == (own.tls_ca, own.tls_cert, own.tls_key)
    assert nats.user == "streams"


def test_check_says_which_secret_was_lost_and_made_again() -> None:
    own = {"app.kubernetes.io/managed-by": "makeway"}
    kept = Metadata(name=PASSWORDS, labels=own)
    again = Metadata(name=login("planner"), labels=own, annotations={MADE_AGAIN: "2026-11-27T12:00:00Z"})
    theirs = Metadata(name="sh.helm.release.v1.makeway.v1", labels={"owner": "helm"})

    (result,) = judge([kept, again, theirs])

    assert (result.state, result.remedy) == ("ok", "")
    assert result.detail == (
        "2 made in the cluster; lost and made again: makeway-nats-planner (2026-11-27T12:00:00Z)"
    )
    assert judge([theirs]) == ()


async def test_a_cluster_in_which_none_was_made_has_a_null_in_place_of_a_list() -> None:
    class _None:
        async def request(self, method: str, path: str, **_: object) -> bytes:
            return b'{"kind":"PartialObjectMetadataList","items":null}'

    at = CheckedCluster(cast("Api", _None()), "makeway-system", Form(), replaced=False)
    assert await secrets_results(at) == ()
