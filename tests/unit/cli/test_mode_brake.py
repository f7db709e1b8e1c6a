"""`makeway mode off` and `--release` against an API server in this process, whatever the policy is."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from makeway.bus.comparison import Comparison
from makeway.cli.check.cluster import configuration_results
from makeway.cli.check.place import CheckedCluster
from makeway.cli.connect.configmaps import StoredMap
from makeway.cli.connect.form import Form
from makeway.cli.mode.begin import begins, found_lines
from makeway.cli.mode.brake import released, set_for
from makeway.cli.mode.components import Confirmation, confirmation
from makeway.cli.mode.report import StoredState, lines, report_of
from makeway.core.policy.brake import RELEASED, Brake, data_of, parse_brake
from makeway.core.policy.document import KEY, Policy
from makeway.dev.samples import MESSAGES
from makeway.runtime.kube import Api
from served import served
from unit.cli.test_connect import kubeconfig, makeway
from unit.cli.test_mode import status

GOOD = "apiVersion: makeway.dev/v1\nkind: Policy\n"
BROKEN = GOOD + "protections: {}\n"
NOWHERE = "nats://127.0.0.1:1"


class Server:
    """ConfigMaps of makeway-system by name, and namespaces. `refused`: verb and name that get a 403."""

    def __init__(self, **configmaps: Mapping[str, str]) -> None:
        self.configmaps = {name.replace("_", "-"): dict(data) for name, data in configmaps.items()}
        self.annotations: dict[str, dict[str, str]] = {}
        self.namespaces = {"makeway-system", "team-a"}
        self.requests: list[tuple[str, str]] = []
        self.refused: set[tuple[str, str]] = set()
        self.bodies: list[Any] = []
        self.managers: dict[str, str] = {}  # of each key of the brake, who applied it last
        self.meanwhile: Mapping[str, str] | None = None  # a brake that is created before the first apply

    async def handle(self, request: web.Request) -> web.Response:
        parts = request.path.strip("/").split("/")
        name = parts[-1]
        self.requests.append((request.method, name))
        if (request.method, name) in self.refused:
            return _status(403, "Forbidden", f'configmaps "{name}" is forbidden')
        if name == "selfsubjectreviews":
            return web.json_response({"status": {"userInfo": {"username": "ops@example.com"}}})
        if name == "pods":
            return web.json_response({"items": []})
        if parts[-2:] == ["v1", "namespaces"]:
            return web.json_response({"items": [{"metadata": {"name": one}} for one in self.namespaces]})
        if parts[-2] == "namespaces":
            found = name in self.namespaces
            return web.json_response({"metadata": {"name": name}}) if found else _status(404, "NotFound", "")
        if name == "configmaps":
            return web.json_response({"items": [self._object(one) for one in self.configmaps]})
        return await self._configmap(request, name)

    async def _configmap(self, request: web.Request, name: str) -> web.Response:
        if request.method == "PATCH":
            body = json.loads(await request.text())
            self.bodies.append(body)
            if name == "makeway-brake":
                if self.meanwhile is not None:
                    self.configmaps[name], self.meanwhile = dict(self.meanwhile), None
                    self.managers = dict.fromkeys(self.configmaps[name], "makeway-mode")
                if self._conflicts(request, body["data"]):
                    return _status(409, "Conflict", "Apply failed with 1 conflict")
                self.managers |= dict.fromkeys(body["data"], request.query.get("fieldManager", ""))
            merged = {**self.configmaps.get(name, {}), **body["data"]}
            self.configmaps[name] = {key: text for key, text in merged.items() if text is not None}
        elif name not in self.configmaps:
            return _status(404, "NotFound", f'configmaps "{name}" not found')
        elif request.method == "DELETE":
            del self.configmaps[name]
            return _status(200, "", "")
        return web.json_response(self._object(name))

    def _conflicts(self, request: web.Request, applied: Mapping[str, str]) -> bool:
        """As server-side apply: another manager's key with another value, unless by force."""
        stored = self.configmaps.get("makeway-brake", {})
        manager = request.query.get("fieldManager")
        return (
            manager is not None
            and request.query["force"] != "true"
            and any(
                key in stored and stored[key] != value and self.managers.get(key) != manager
                for key, value in applied.items()
            )
        )

    def _object(self, name: str) -> dict[str, Any]:
        metadata = {
            "name": name,
            "namespace": "makeway-system",
            "resourceVersion": "7",
            "annotations": self.annotations.get(name, {}),
            "creationTimestamp": "2026-11-20T08:00:00Z",
            "managedFields": [{"manager": "kubectl", "time": "2026-11-23T03:00:00Z"}],
        }
        return {"metadata": metadata, "data": self.configmaps[name]}

    @property
    def brake(self) -> Brake:
        data = self.configmaps.get("makeway-brake")
        return RELEASED if data is None else parse_brake(data)


def _status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "reason": reason, "message": message}, status=code)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[str]:
    async with served(server.handle) as port:
        yield f"http://127.0.0.1:{port}"


async def mode(
    server: Server, directory: Path, *arguments: str, exits: int | None = None
) -> tuple[int, str, str]:
    async with serving(server) as url:
        where = f"--kubeconfig={kubeconfig(directory, url)}", f"--nats-url={NOWHERE}"
        return await makeway("mode", *arguments, *where, exits=exits)


@pytest.mark.parametrize(
    ("policy", "annotations"),
    [
        ({"makeway_policy": {"policy.yaml": BROKEN}}, {}),
        ({"makeway_policy": {"policy.yaml": "{"}}, {}),
        ({"makeway_policy": {"policies.yaml": GOOD}}, {}),
        ({}, {}),
        ({"makeway_policy": {"policy.yaml": GOOD}}, {"argocd.argoproj.io/tracking-id": "x"}),
    ],
    ids=["refused", "no YAML", "no key", "missing", "managed by Argo CD"],
)
async def test_off_sets_the_brake_whatever_state_the_policy_is_in(
    policy: dict[str, dict[str, str]], annotations: dict[str, str], tmp_path: Path
) -> None:
    server = Server(**policy)
    server.annotations["makeway-policy"] = annotations
    before = dict(server.configmaps)

    _, out, _ = await mode(server, tmp_path, "off", "--no-wait", "--reason", "too many\nevictions", exits=0)

    assert server.brake.everywhere
    assert (server.brake.by, server.brake.reason) == ("ops@example.com", "too many evictions")
    assert "the brake is set everywhere since" in out
    assert "by ops@example.com: too many evictions  (ConfigMap" in out.splitlines()[0]
    assert out.splitlines()[1].startswith("mode: off, by the brake since ")
    assert {name: data for name, data in server.configmaps.items() if name != "makeway-brake"} == before


@pytest.mark.parametrize(
    "command", [("mode",), ("mode", "off"), ("mode", "observe"), ("breaker",), ("breaker", "reset")]
)
async def test_where_makeway_is_in_another_namespace_nothing_is_shown_and_nothing_set(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    server = Server(makeway_policy={"policy.yaml": GOOD})
    before = dict(server.configmaps)

    async with serving(server) as url:
        code, out, err = await makeway(
            *command, "--makeway-namespace=team-a", f"--kubeconfig={kubeconfig(tmp_path, url)}"
        )

    assert (code, out) == (1, "")
    assert "makeway is not installed in team-a; it is in makeway-system; give --makeway-namespace" in err
    assert server.configmaps == before


async def test_the_brake_is_set_where_makeway_is_found_in_no_namespace(tmp_path: Path) -> None:
    server = Server()

    async with serving(server) as url:
        code, _, err = await makeway("mode", "off", "--no-wait", f"--kubeconfig={kubeconfig(tmp_path, url)}")
        shown, _, said = await makeway("mode", "--no-wait", f"--kubeconfig={kubeconfig(tmp_path, url)}")

    assert code == 0, err
    assert server.brake.everywhere
    assert shown == 1
    assert "makeway is not installed in makeway-system" in said


async def test_a_mode_with_a_release_that_cannot_be_is_not_written(tmp_path: Path) -> None:
    server = Server(makeway_policy={"policy.yaml": GOOD}, makeway_brake=data_of(Brake(everywhere=True)))
    before = dict(server.configmaps)

    code, out, err = await mode(server, tmp_path, "observe", "--release", "-n", "team-a")

    assert (code, out) == (1, "")
    assert "cannot be released for namespace team-a alone" in err
    assert server.configmaps == before


async def test_off_is_set_without_nats_and_says_who_keeps_to_it(tmp_path: Path) -> None:
    server = Server()

    _, out, err = await mode(server, tmp_path, "off", exits=3)

    assert server.brake.everywhere
    assert "the brake is set everywhere" in out
    assert "which components confirm it is not known" in err
    assert "every evictor reads the brake from the API server before its next delete" in err


async def test_off_for_a_namespace_adds_it_and_off_for_all_holds_everywhere(tmp_path: Path) -> None:
    server = Server(makeway_brake={"mode": "off", "namespaces": "batch", "by": "x"})

    await mode(server, tmp_path, "off", "-n", "team-a", "--no-wait", exits=0)
    assert server.brake.scope() == "batch, team-a"

    await mode(server, tmp_path, "off", "--no-wait", exits=0)
    assert server.brake.scope() == "everywhere"


async def test_a_brake_for_a_namespace_narrows_none_that_is_set_everywhere_meanwhile(tmp_path: Path) -> None:
    server = Server()
    server.meanwhile = data_of(Brake(everywhere=True, since="2026-11-23T03:40:10Z", by="x"))

    await mode(server, tmp_path, "off", "-n", "team-a", "--no-wait", exits=0)

    assert server.brake == Brake(everywhere=True, since="2026-11-23T03:40:10Z", by="x")


async def test_a_brake_set_everywhere_outlasts_one_set_for_a_namespace_meanwhile(tmp_path: Path) -> None:
    server = Server()
    server.meanwhile = data_of(Brake(namespaces=frozenset({"team-a"}), since="t", by="x"))

    await mode(server, tmp_path, "off", "--no-wait", exits=0)

    assert server.brake.everywhere


async def test_release_removes_it_and_a_second_one_says_that_it_was_not_set(tmp_path: Path) -> None:
    server = Server(makeway_brake={"mode": "off"}, makeway_policy={"policy.yaml": BROKEN})

    code, out, err = await mode(server, tmp_path, "--release", "--no-wait")
    assert (code, server.brake) == (0, RELEASED), err
    assert "the brake is released" in out
    assert "policy: refused, the last good one stays effective" in out
    assert "protections" in out

    _, out, _ = await mode(server, tmp_path, "--release", "--no-wait", exits=0)
    assert "the brake is not set" in out


async def test_a_release_for_a_namespace_neither_braked_nor_there_is_a_mistake(tmp_path: Path) -> None:
    server = Server(makeway_brake={"mode": "off", "namespaces": "gone", "by": "x"})

    _, _, err = await mode(server, tmp_path, "--release", "-n", "team-b", "--no-wait", exits=1)
    assert "there is no namespace team-b: nothing was changed; `kubectl get namespaces` lists them" in err

    code, _, err = await mode(server, tmp_path, "--release", "-n", "gone", "--no-wait")
    assert (code, server.brake) == (0, RELEASED), err


async def test_without_a_mode_it_shows_brake_broken_policy_and_since_when(tmp_path: Path) -> None:
    since = "2026-11-23T03:40:10Z"
    server = Server(
        makeway_brake={"mode": "off", "since": since, "by": "ops", "reason": "incident 7"},
        makeway_policy={"policy.yaml": BROKEN},
    )

    _, out, _ = await mode(server, tmp_path, exits=3)

    assert out.splitlines()[:3] == [
        f"mode: off, by the brake since {since}",
        f"brake: set everywhere since {since} by ops: incident 7  (ConfigMap makeway-system/makeway-brake)",
        "policy: refused, the last good one stays effective  (ConfigMap makeway-system/makeway-policy)",
    ]
    assert "did you mean protection?" in out


@pytest.mark.parametrize("wanted", ["enforce", "observe"])
async def test_while_the_brake_is_set_another_mode_asks_for_the_release(wanted: str, tmp_path: Path) -> None:
    server = Server(makeway_brake={"mode": "off", "by": "ops"}, makeway_policy={"policy.yaml": GOOD})

    _, _, err = await mode(server, tmp_path, wanted, "--yes", "--no-wait", exits=1)
    assert "the brake is set everywhere by ops: nothing was changed" in err
    assert "`makeway mode --release` releases it" in err
    assert server.brake.everywhere
    assert server.configmaps["makeway-policy"]["policy.yaml"] == GOOD

    await mode(server, tmp_path, wanted, "--release", "--yes", "--no-wait", exits=0)
    assert server.brake == RELEASED
    assert f"mode: {wanted}" in server.configmaps["makeway-policy"]["policy.yaml"]


@pytest.mark.parametrize("arguments", [["enforce", "--yes"], ["observe"], ["off"], ["--release"], []])
async def test_a_missing_namespace_is_refused_with_a_remedy(arguments: list[str], tmp_path: Path) -> None:
    server = Server(makeway_policy={"policy.yaml": GOOD})

    _, _, err = await mode(server, tmp_path, *arguments, "-n", "team-b", "--no-wait", exits=1)

    assert "there is no namespace team-b: nothing was changed; `kubectl get namespaces` lists them" in err


async def test_the_first_enforce_without_a_terminal_takes_yes(tmp_path: Path) -> None:
    observing = GOOD + "mode: observe\n"
    server = Server(makeway_policy={"policy.yaml": observing})

    for arguments in (["enforce"], ["enforce", "-n", "team-a"]):
        _, _, err = await mode(server, tmp_path, *arguments, "--no-wait", exits=2)
        assert "what mode observe has found cannot be read" in err
        assert "this begins to evict pods, and there is no terminal to ask at: nothing was changed" in err
    assert server.configmaps["makeway-policy"]["policy.yaml"] == observing

    await mode(server, tmp_path, "enforce", "--yes", "--no-wait", exits=0)
    assert server.configmaps["makeway-policy"]["policy.yaml"] == GOOD + "mode: enforce\n"
    await mode(server, tmp_path, "enforce", "--no-wait", exits=0)


async def test_the_brake_is_applied_by_its_name_alone(tmp_path: Path) -> None:
    server = Server()
    server.refused = {("POST", "configmaps"), ("PATCH", "makeway-policy")}

    await mode(server, tmp_path, "off", "--no-wait", exits=0)

    assert ("PATCH", "makeway-brake") in server.requests
    assert ("POST", "configmaps") not in server.requests


async def test_whoever_may_set_the_brake_need_not_be_allowed_to_read_the_policy(tmp_path: Path) -> None:
    server = Server(makeway_policy={"policy.yaml": GOOD})
    server.refused = {("GET", "makeway-policy"), ("PATCH", "makeway-policy"), ("GET", "pods")}

    _, out, _ = await mode(server, tmp_path, "off", "--no-wait", exits=0)

    assert server.brake.everywhere
    assert 'policy: not known: configmaps "makeway-policy" is forbidden' in out


async def test_check_shows_the_brake(tmp_path: Path) -> None:
    server = Server(makeway_brake={"mode": "off", "namespaces": "batch", "by": "ops"})
    async with serving(server) as url:
        api = await Api.connect(kubeconfig=kubeconfig(tmp_path, url), user_agent="test")
        try:
            results = await configuration_results(
                CheckedCluster(api, "makeway-system", Form(), replaced=False)
            )
        finally:
            await api.close()

    (brake,) = (one for one in results if one.name == "brake")
    assert brake.state == "warning"
    assert brake.detail.startswith("the brake is set for batch by ops")


# ------------------------------------------------------------------------------------ the pure part

SINCE: dict[str, Any] = {"since": "t", "by": "b", "reason": "r"}


def test_a_brake_that_cannot_be_understood_is_written_anew() -> None:
    assert set_for(parse_brake({"mode": "on"}), "", **SINCE) == Brake(everywhere=True, **SINCE)


def test_a_namespace_is_released_alone_unless_all_are_braked() -> None:
    both = Brake(namespaces=frozenset({"a", "b"}), **SINCE)
    assert released(both, "a").scope() == "b"
    assert released(Brake(namespaces=frozenset({"a"})), "a") == RELEASED
    with pytest.raises(ValueError, match="makeway mode --release"):
        released(Brake(everywhere=True), "a")


def test_a_mode_begins_to_enforce_where_it_did_not() -> None:
    observe, enforce = Policy(mode="observe"), Policy()
    one = Policy(mode="observe", namespace_modes={"a": "enforce"})
    assert begins(observe, enforce, "")
    assert begins(observe, one, "a")
    assert begins(one, enforce, "")
    assert not begins(enforce, enforce, "")
    assert not begins(one, one, "a")
    assert not begins(enforce, observe, "")


def test_what_would_begin_is_counted_for_the_namespace_that_is_asked_about() -> None:
    comparison = next(one for one in MESSAGES.values() if isinstance(one, Comparison) and one.makeway)
    assert comparison.makeway is not None
    pods, victims = "1 pod", len(comparison.makeway.victims)

    text = found_lines([comparison, comparison], comparison.preemptor.namespace)[0]
    assert f"made room for {pods}, with {2 * victims} victim" in text
    assert "made room for 0 pods, with 0 victims" in found_lines([comparison], "elsewhere")[0]


def stored(policy: str) -> StoredMap:
    return StoredMap({KEY: policy}, version="7", since="2026-11-23T03:00:00Z")


def test_the_mode_of_a_namespace_is_not_taken_for_that_of_the_cluster() -> None:
    policy = GOOD + "mode: enforce\nnamespaceModes: {default: observe}\n"
    said = StoredState.of(RELEASED, stored(policy))

    shown = list(lines(report_of(said, namespace="", changed=False, components=[]), "ns"))

    assert shown[1].startswith("policy: enforce; namespace default: observe  (")


def test_with_a_refused_policy_the_mode_is_what_the_components_go_by() -> None:
    said = StoredState.of(RELEASED, stored(BROKEN))
    heard = [Confirmation("evictor", "e", confirmed=False, mode="enforce", policy_revision="sha256:1")]

    shown = list(lines(report_of(said, namespace="", changed=False, components=heard), "ns"))

    assert shown[0] == "mode: enforce, by the last good policy"
    assert shown[1] == "policy: refused, the last good one stays effective  (ConfigMap ns/makeway-policy)"
    unknown = list(lines(report_of(said, namespace="", changed=False, components=[]), "ns"))
    assert unknown[0] == "mode: not known, by the last good policy"
    heard = [Confirmation("evictor", "e", confirmed=False, mode="enforce")]
    first = list(lines(report_of(said, namespace="", changed=False, components=heard), "ns"))
    assert first[0] == "mode: enforce, by default"
    assert first[1].startswith("policy: refused, and none was accepted before  (")


def test_what_is_in_force_names_what_says_so() -> None:
    observe = StoredState.of(RELEASED, stored(GOOD + "mode: observe\n"))
    none = StoredState.of(RELEASED, StoredMap())
    batch = StoredState.of(Brake(namespaces=frozenset({"batch"}), since="2026-11-23T03:40:10Z"), StoredMap())

    def first(said: StoredState, namespace: str = "") -> str:
        return next(lines(report_of(said, namespace=namespace, changed=False, components=[]), "ns"))

    assert first(observe) == "mode: observe, by the policy since 2026-11-23T03:00:00Z"
    assert first(none) == "mode: enforce, by default"
    assert first(batch) == "mode: enforce, by default"
    assert first(batch, "batch") == "mode: off for namespace batch, by the brake since 2026-11-23T03:40:10Z"


def test_a_component_confirms_the_brake_by_its_mode_whatever_policy_it_has() -> None:
    assert confirmation(status(mode="off", policy_revision="x"), revision=None, mode="off").confirmed
    assert not confirmation(status(mode="enforce"), revision=None, mode="off").confirmed


def test_with_a_refused_policy_a_component_confirms_the_release_by_its_brake() -> None:
    free, held = status(brake=""), status(brake="everywhere")

    assert confirmation(free, revision=None, mode=None).confirmed
    assert confirmation(free, revision=None, mode=None).why == "goes by the last good policy"
    never = status(brake="", policy_revision="")
    assert confirmation(never, revision=None, mode=None).why == "goes by the defaults: none accepted yet"
    assert not confirmation(held, revision=None, mode=None).confirmed
    assert confirmation(held, revision=None, mode=None).why == "is still braked: everywhere"


async def test_what_a_reset_closed_is_not_shown_as_open(tmp_path: Path) -> None:
    for more in ((), ("-ojson",)):
        server = Server(makeway_breaker={"mismatches": "2026-11-23T03:00:00Z 7 orders"})
        async with serving(server) as url:
            where = f"--kubeconfig={kubeconfig(tmp_path, url)}", f"--nats-url={NOWHERE}"
            _, out, _ = await makeway("breaker", "reset", *where, *more, exits=0)
        assert list(server.configmaps["makeway-breaker"]) == ["resetAt"]
        if more:
            said = json.loads(out)
            assert (said["open"], [one["cause"] for one in said["closed"]]) == ([], ["mismatches"])
        else:
            assert out.splitlines() == [
                "the breaker was open everywhere since 2026-11-23T03:00:00.000Z: mismatches: 7 orders",
                "the breaker is reset; evictors follow within seconds  "
                "(ConfigMap makeway-system/makeway-breaker)",
            ]
