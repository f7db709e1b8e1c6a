"""How commands reach an installation: the address, the namespace, and the words where there is no way."""

import asyncio
import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import cast
from urllib.parse import urlsplit

import pytest

from fixtures_nats import NatsServer
from forked_command import ENVIRONMENT, run_forked
from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable
from makeway.cli.connect.context import context_namespace
from makeway.cli.connect.nats import Endpoint, installed, must_answer, reachable
from makeway.cli.connect.session import installation_of
from makeway.dev.pki import Authority
from makeway.runtime.kube import Api
from nats_operator import Identity


async def makeway(*arguments: str, exits: int | None = None, **environment: str) -> tuple[int, str, str]:
    """Run the command; `exits`: the code that it has to end with."""
    code, out, err = await run_forked(arguments, {**ENVIRONMENT, **environment})
    assert "Traceback" not in err
    assert exits in (None, code), err or out
    return code, out, err


@asynccontextmanager
async def api_server(status: int, body: object, *, after_seconds: float = 0) -> AsyncIterator[str]:
    """Answer every request alike; give the URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(after_seconds)
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def kubeconfig(directory: Path, server: str) -> str:
    path = directory / "kubeconfig"
    path.write_text(
        dedent(f"""
        apiVersion: v1
        kind: Config
        current-context: here
        clusters: [{{name: c, cluster: {{server: "{server}"}}}}]
        users: [{{name: u, user: {{token: t}}}}]
        contexts:
          - {{name: here, context: {{cluster: c, user: u}}}}
          - {{name: there, context: {{cluster: c, user: u, namespace: team-a}}}}
        """)
    )
    return str(path)


@pytest.mark.nats
async def test_nats_is_found_by_its_configmap(bus: Bus, nats_server: NatsServer, tmp_path: Path) -> None:
    installation = {"data": {"natsUrl": nats_server.url, "subjectPrefix": "makeway", "more": "x"}}
    async with api_server(200, installation) as url:
        code, out, err = await makeway(
            "history", "--unreadable", "-o", "json", KUBECONFIG=kubeconfig(tmp_path, url)
        )

    assert (code, out, err) == (0, "[]\n", "")


def answering(answers: Mapping[str, object], asked: list[str]) -> Api:
    """An API server of one namespace's objects, which notes what it is asked for."""

    class Answering:
        async def request(self, _: str, path: str) -> bytes:
            asked.append(path.removeprefix("/api/v1/namespaces/ns/"))
            return json.dumps(answers[asked[-1]]).encode()

    return cast("Api", Answering())


async def test_user_and_password_come_from_the_secret_that_the_installation_names() -> None:
    answers: dict[str, object] = {
        "configmaps/makeway-installation": {"data": {"natsUrl": "nats://a:1,nats://b:2", "natsSecret": "r"}},
        "secrets/r": {"data": {"user": "dmlld2Vy", "password": "cC93"}},
    }

    assert (
        await installed(answering(answers, []), "ns")
    ).url == "nats://viewer:p%2Fw@a:1,nats://viewer:p%2Fw@b:2"


async def test_key_and_certificates_come_from_the_secrets_that_the_installation_names(tmp_path: Path) -> None:
    authority, user = Authority(tmp_path / "pki"), Identity("user")
    client = authority.client("people")

    def secret(**data: bytes) -> dict[str, object]:
        return {"data": {name.replace("_", "."): b64encode(text).decode() for name, text in data.items()}}

    named = {"natsSecret": "r", "natsCaSecret": "ca", "natsClientCertSecret": "cert"}
    answers: dict[str, object] = {
        "configmaps/makeway-installation": {"data": {"natsUrl": "tls://a:1", **named}},
        "secrets/r": secret(nats_nk=user.seed.encode()),
        "secrets/ca": secret(ca_crt=authority.certificate.read_bytes()),
        "secrets/cert": secret(tls_crt=client.certificate.read_bytes(), tls_key=client.key.read_bytes()),
    }
    asked: list[str] = []

    api = answering(answers, asked)
    found = await installed(api, "ns")
    assert found.url == "tls://a:1"
    assert found.login is not None
    assert found.login.key().public() == user.public
    assert found.tls is not None
    assert found.tls().cert_store_stats()["x509_ca"] == 1

    # What options say is not asked for.
    asked.clear()
    assert (await installed(api, "ns", reads_login=False, reads_tls=False)).login is None
    assert asked == ["configmaps/makeway-installation"]

    answers["secrets/r"] = secret(other=b"x")
    answers["secrets/cert"] = secret(other=b"x")
    with pytest.raises(ValueError, match=r"Secret ns/r and ns/ca and ns/cert .* none of nats\.creds"):
        await installed(api, "ns")
    answers["secrets/r"] = secret(nats_nk=b"SUA")
    with pytest.raises(ValueError, match=r"Secret ns/r .*seed of an nkey"):
        await installed(api, "ns")


@pytest.mark.nats
async def test_certificates_come_from_that_secret_too(nats_server: NatsServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    serving, client = authority.serving("nats"), authority.client("viewer")
    nats_server.extra = f"""
      tls {{ cert_file: "{serving.certificate}", key_file: "{serving.key}",
             ca_file: "{authority.certificate}", verify: true }}
    """
    nats_server.restart()
    files = {"ca.crt": authority.certificate, "tls.crt": client.certificate, "tls.key": client.key}
    secret = {name: b64encode(file.read_bytes()).decode() for name, file in files.items()}
    secret |= {"user": "dmlld2Vy", "password": "cC93"}
    # One answer for the ConfigMap and for the Secret.
    both = {"data": {"natsUrl": nats_server.url, "natsSecret": "viewer", **secret}}

    async with api_server(200, both) as url:
        code, out, err = await makeway("history", "--unreadable", KUBECONFIG=kubeconfig(tmp_path, url))

    # Connected: this server has no streams.
    assert (code, out) == (1, "")
    assert "there is no stream" in err


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, 3, "no permission: you may not"),
        (404, 3, "there is no ConfigMap makeway-system/makeway-installation: give --makeway-namespace"),
        (500, 1, "500"),
    ],
)
async def test_what_stands_in_the_way_is_one_line_and_an_exit_code(
    tmp_path: Path, status: int, code: int, said: str
) -> None:
    refusal = {"kind": "Status", "reason": "X", "message": "you may not"}
    async with api_server(status, refusal) as url:
        # Nobody may listen at the usual address for a 404 to end so.
        got, out, err = await makeway("queues", KUBECONFIG=kubeconfig(tmp_path, url))

    assert (got, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1


ASKING = (
    "why x",
    "check",
    "history",
    "history --compare",
    "queues",
    "mode",
    "mode off",
    "breaker",
    "keys rotate",
    "replay dec-1",
    "simulate -f POD",
    "ui --port 0",
)
"""Commands that reach an installation."""


async def asked(command: str, directory: Path, server: str, exits: int | None = None) -> tuple[int, str, str]:
    pod = directory / "pod.yaml"
    pod.write_text("{apiVersion: v1, kind: Pod, metadata: {name: x}, spec: {containers: [{name: a}]}}")
    arguments = command.replace("POD", str(pod)).split()
    return await makeway(*arguments, KUBECONFIG=kubeconfig(directory, server), exits=exits)


@pytest.mark.parametrize("command", ASKING)
async def test_an_api_server_out_of_reach_is_exit_code_3_with_a_remedy(command: str, tmp_path: Path) -> None:
    code, out, err = await asked(command, tmp_path, "http://127.0.0.1:9")

    assert (code, out) == (3, "")
    assert re.fullmatch(r"makeway: .*127\.0\.0\.1:9: connection refused; .* --context .*\n", err)


@pytest.mark.parametrize("command", ASKING)
async def test_a_user_without_rights_is_told_so_and_it_is_exit_code_3(command: str, tmp_path: Path) -> None:
    refusal = {"kind": "Status", "reason": "Forbidden", "message": "you may not"}
    async with api_server(403, refusal) as url:
        code, out, err = await asked(command, tmp_path, url)

    assert (code, out) == (3, "")
    assert "no permission: you may not; " in err
    assert ("kubectl describe pod" if command == "why x" else "administrator") in err


async def test_credentials_that_have_expired_are_no_missing_right(tmp_path: Path) -> None:
    async with api_server(
        401, {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"}
    ) as url:
        for command in ("mode off", "check", "why x"):
            code, out, err = await asked(command, tmp_path, url)

            assert (code, out) == (3, "")
            assert "does not know who you are: Unauthorized; log in again, or give --context" in err
            assert "permission" not in err


async def test_a_nats_that_is_silent_is_named() -> None:
    async with api_server(200, {}) as url:
        _, _, err = await makeway("history", "--nats-url", url.replace("http", "nats"), exits=3)

    assert err.endswith("; does NATS run? `makeway check` says what does\n")


@pytest.mark.parametrize("command", ["why x", "check", "history", "simulate -f -"])
async def test_a_kubeconfig_that_does_not_exist_is_named_first(command: str) -> None:
    code, out, err = await makeway(*command.split(), KUBECONFIG="/nonexistent/config")

    assert (code, out) == (3, "")
    assert err.startswith("makeway: there is no kubeconfig /nonexistent/config")


async def test_without_any_kubeconfig_that_is_said_before_the_usual_address() -> None:
    _, _, err = await makeway("history", exits=3)

    assert err.startswith("makeway: there is no kubeconfig ~/.kube/config, and no service account")


async def test_no_error_speaks_python(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    there = kubeconfig(tmp_path, "https://127.0.0.1:9")
    commands = (
        ("check", "--kubeconfig", there),
        ("check", "--kubeconfig", str(binary)),
        ("history", "--nats-url", "nats://127.0.0.1:9"),
        ("history", "--nats-url", "nats://no.such.host.invalid"),
        ("simulate", "-f", str(binary)),
        ("simulate", "-f", str(tmp_path)),
        ("replay", "--from", str(binary)),
        ("policy", "lint", str(binary)),
    )
    said = await asyncio.gather(*(makeway(*command) for command in commands))

    for code, out, err in said:
        assert code
        assert not re.search(r"Errno|Error\b|codec|object at|Exception", out + err), out + err
    assert "cannot connect to 127.0.0.1:9: connection refused" in said[0][2]


async def test_a_terminal_that_is_not_in_utf_8_gets_escapes() -> None:
    # In a process of its own: Python reads its encoding when it starts.
    result = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", "from makeway.cli.main import main; main()", "policy", "lint", "ö.yaml"],
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith("\\xf6.yaml: cannot be read: no such file")


@pytest.mark.nats
async def test_a_planner_that_is_away_is_exit_code_3(bus: Bus, nats_server: NatsServer) -> None:
    code, out, err = await makeway("queues", "--nats-url", nats_server.url)

    assert (code, out) == (3, "")
    assert err.startswith(
        "makeway: no planner answers: ask the planner about queues: none listens on this NATS;"
    )


@pytest.mark.nats
async def test_a_planner_that_is_silent_is_named(bus: Bus, nats_server: NatsServer) -> None:
    await bus.connection.client.subscribe(bus.subjects.queues)

    _, _, err = await makeway("queues", "--nats-url", nats_server.url, exits=3)

    assert err.endswith("; `makeway check` says which parts run\n")


async def test_a_prefix_that_cannot_be_one_is_wrong_usage() -> None:
    _, _, err = await makeway("queues", "--subject-prefix", "a b", exits=2)

    assert "--subject-prefix" in err


async def test_a_service_out_of_reach_without_kubectl_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(BusUnavailable, match=r"kubectl --context=c port-forward -n ns svc/nats 4222:4222"):
        async with reachable("nats://nats.ns.svc:4222", None, "c"):
            pass


async def test_a_service_out_of_reach_is_reached_by_a_forwarded_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/called\n'
        'echo "Forwarding from 127.0.0.1:4711 -> 4222"\nexec sleep 60\n'
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    async with reachable("nats://me:secret@nats.ns:4333", Path("/k"), None) as way:
        assert way == Endpoint("nats://me:secret@127.0.0.1:4711", tls_hostname="nats.ns")

    assert (tmp_path / "called").read_text() == "--kubeconfig=/k port-forward -n ns svc/nats :4333\n"


async def test_where_nats_is_away_the_command_is_named_that_says_what_runs() -> None:
    _, _, err = await makeway("history", "--nats-url", "nats://127.0.0.1:1", exits=3)

    assert err.endswith("(--nats-url); does NATS run? `makeway check` says what does\n")


async def test_an_address_that_is_no_service_is_taken_as_it_is() -> None:
    for url in ("nats://10.0.0.1:4222", "nats://nats.example.com:4222,nats://other:4222", "localhost"):
        async with reachable(url, None, None) as given:
            assert given == Endpoint(url)


@pytest.mark.parametrize(
    ("urls", "error", "why"),
    [
        ("nats://127.0.0.1:1", BusUnavailable, "cannot connect to NATS at 127.0.0.1:1: connection refused"),
        (
            "nats://u:secret@127.0.0.1:1,nats://127.0.0.1:9",
            BusUnavailable,
            "at 127.0.0.1:1, 127.0.0.1:9: con",
        ),
        ("nats://u:secret@127.0.0.1:99999", ValueError, "the URL of NATS cannot be used: Port out of range"),
    ],
)
async def test_a_server_that_takes_no_connection_is_not_tried_again(
    urls: str, error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why) as raised:
        await must_answer(urls)
    assert "secret" not in str(raised.value)


async def test_one_server_of_several_that_takes_connections_will_do(nats_server: NatsServer) -> None:
    await must_answer(f"nats://127.0.0.1:1,{nats_server.url}")


@pytest.mark.nats
async def test_a_forwarded_port_gets_no_connection_that_is_closed_at_once(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looked: list[str] = []

    async def look(urls: str) -> None:
        looked.append(urls)

    monkeypatch.setattr("makeway.cli.connect.nats.must_answer", look)
    kubectl = tmp_path / "kubectl"
    port = urlsplit(nats_server.url).port
    kubectl.write_text(f'#!/bin/sh\necho "Forwarding from 127.0.0.1:{port} -> 4222"\nexec sleep 60\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    direct = installation_of({"nats_url": nats_server.url})

    async with direct.bus(), replace(direct, nats_url="nats://nats.no-such-namespace:4222").bus():
        pass

    assert looked == [nats_server.url]


def test_the_namespace_is_the_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(kubeconfig(tmp_path, "http://x"))
    monkeypatch.setenv("KUBECONFIG", f"/nonexistent:{path}")

    assert context_namespace(None, None) == "default"
    assert context_namespace(None, "there") == "team-a"
    assert context_namespace(path, "there") == "team-a"


@pytest.mark.parametrize("asked", [f"policy lint {__file__} -o yaml", f"policy lint {__file__}", "--help"])
def test_a_pipe_that_is_closed_ends_a_command_quietly(asked: str) -> None:
    program = "from makeway.cli.main import main; main()"
    command = f"{sys.executable} -c '{program}' {asked} | true; exit ${{PIPESTATUS[0]}}"

    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert (result.returncode, result.stderr) == (141, "")
