"""How the Go client, the streams' keeper and the commands get into a real nats-server, or are refused.

The server asks for TLS and for client certificates of a private authority, and for an nkey or a user's JWT.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from fixtures_nats import NatsServer
from go_tests import go_test, needs_go
from makeway.dev.pki import Authority, KeyPair
from nats_operator import Identity, Operator

pytestmark = pytest.mark.nats

SERVICE = "nats.messaging.svc"
NO_CERTIFICATE = "it asks for a client certificate, and got none"
OTHER_AUTHORITY = "it does not trust the authority of the client certificate"
NOT_TRUSTED = "its certificate is not trusted"
OTHER_NAME = f"its certificate is not valid for '{SERVICE}'"


class Guarded:
    """A nats-server that lets in who has a certificate of its authority."""

    def __init__(self, server: NatsServer, directory: Path, *names: str) -> None:
        self.server = server
        self.authority = Authority(directory / "pki")
        self.other = Authority(directory / "other")
        self.client = self.authority.client("client")
        self._serving = self.authority.serving("nats", *names)
        self.admits("")

    def admits(self, logins: str, *, mapped: bool = False) -> None:
        """Have it ask for one of these logins besides a certificate; `mapped`: the certificate says which."""
        self.server.extra = f"""
          tls {{ cert_file: "{self._serving.certificate}", key_file: "{self._serving.key}",
                 ca_file: "{self.authority.certificate}", {"verify_and_map" if mapped else "verify"}: true }}
          {logins}
        """
        self.server.restart()

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.server.port}"


@pytest.fixture
def guarded(nats_server: NatsServer, tmp_path: Path) -> Guarded:
    return Guarded(nats_server, tmp_path)


def options(authority: Path | None, client: KeyPair | None) -> list[str]:
    """What a command verifies NATS by, and shows of itself."""
    given = ["--nats-tls-ca", str(authority)] if authority else []
    return given + (
        ["--nats-tls-cert", str(client.certificate), "--nats-tls-key", str(client.key)] if client else []
    )


async def makeway(*arguments: str, path: str = "", **environment: str) -> tuple[int, str]:
    """Run a command; returns its exit code and all that it said."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "makeway"),
        *arguments,
        env={"PATH": f"{path}:{os.environ['PATH']}", "HOME": "/nonexistent", **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(200):
            said = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:  # what is left of it would fail a later test
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, said


def assert_for_people(said: str, *wanted: str) -> None:
    """One line: where it went wrong, what, and what to do.

    It has no words of a library, and no remedy for a NATS that is away.
    """
    assert len(said.splitlines()) == 1, said
    assert "does NATS run" not in said
    for part in ("cannot connect to NATS at tls://127.0.0.1:", *wanted):
        assert part in said
    assert not re.search(r"SSL|_ssl\.c|ALERT|x509|Errno|Error\b|Exception", said), said


@pytest.mark.parametrize("command", ["history", "streams"])
async def test_without_the_right_certificate_one_is_told_what_to_give(guarded: Guarded, command: str) -> None:
    ours, theirs = guarded.authority.certificate, guarded.other.certificate
    refused: Mapping[tuple[Path, KeyPair | None], tuple[str, str]] = {
        (ours, None): (NO_CERTIFICATE, "give --nats-tls-cert and --nats-tls-key"),
        (ours, guarded.other.client("client")): (OTHER_AUTHORITY, "give --nats-tls-cert and --nats-tls-key"),
        (theirs, guarded.client): (NOT_TRUSTED, "give --nats-tls-ca"),
    }

    answers = await asyncio.gather(
        *(makeway(command, "--nats-url", guarded.url, *options(*files)) for files in refused)
    )

    for (code, said), wanted in zip(answers, refused.values(), strict=True):
        assert code == (3 if command == "history" else 1), said
        assert_for_people(said, *wanted)


@pytest.fixture
def forwarding(guarded: Guarded, tmp_path: Path) -> str:
    """Make a kubectl that forwards to the server; returns the directory it is in."""
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    port = guarded.server.port
    kubectl.write_text(f'#!/bin/sh\necho "Forwarding from 127.0.0.1:{port} -> 4222"\nexec sleep 60\n')
    kubectl.chmod(0o755)
    return str(kubectl.parent)


async def test_through_a_forwarded_port_the_name_of_the_service_is_verified(
    guarded: Guarded, forwarding: str, tmp_path: Path
) -> None:
    shown = options(guarded.authority.certificate, guarded.client)
    command = ("history", "--unreadable", "--nats-url", f"tls://{SERVICE}:4222", *shown)

    code, said = await makeway(*command, path=forwarding)
    assert code == 3
    assert_for_people(said, OTHER_NAME, "address it by a name that its certificate has")

    named = Guarded(guarded.server, tmp_path / "named", SERVICE)
    shown = options(named.authority.certificate, named.client)
    code, said = await makeway(*command[:4], *shown, path=forwarding)
    assert (code, "there is no stream" in said) == (1, True), said


def keys_and_jwts(guarded: Guarded, directory: Path) -> dict[str, tuple[str, Path, Path]]:
    """By login: what the server asks for, the file that it admits, and one that it does not."""
    known, unknown = Identity("user"), Identity("user")
    ours, theirs = Operator(), Operator()
    texts = {
        "nkey": (
            f"authorization {{ users: {json.dumps([{'nkey': known.public}])} }}",
            known.seed,
            unknown.seed,
        ),
        "creds": (ours.configuration(), ours.credentials("user"), theirs.credentials("user")),
    }
    made = {}
    for name, (asks, right, wrong) in texts.items():
        files = directory / f"right.{name}", directory / f"wrong.{name}"
        for file, text in zip(files, (right, wrong), strict=True):
            file.write_text(text)
        made[name] = (asks, *files)
    return made


@pytest.mark.parametrize("login", ["nkey", "creds"])
async def test_commands_log_in_by_nkey_or_credentials(guarded: Guarded, tmp_path: Path, login: str) -> None:
    asks, right, wrong = keys_and_jwts(guarded, tmp_path)[login]
    guarded.admits(asks)
    common = ("--nats-url", guarded.url, *options(guarded.authority.certificate, guarded.client))

    made = await makeway("streams", *common, f"--nats-{login}", str(right))
    read = await makeway("history", "--unreadable", *common, f"--nats-{login}", str(right))
    refused = [
        await makeway("history", "--unreadable", *common, *given)
        for given in ([], [f"--nats-{login}", str(wrong)])
    ]

    assert (made[0], "MAKEWAY_ORDERS" in made[1]) == (0, True), made
    assert read[0] == 0, read
    for code, said in refused:
        assert code == 3
        assert_for_people(said, "no permission", "does not admit this client", "--nats-creds or --nats-nkey")


MAPPED = 'authorization { users: [{ user: "CN=client" }] }'


async def test_commands_are_who_their_certificate_says(guarded: Guarded) -> None:
    guarded.admits(MAPPED, mapped=True)
    stranger = guarded.authority.client("stranger")

    made, refused = [
        await makeway("streams", "--nats-url", guarded.url, *options(guarded.authority.certificate, client))
        for client in (guarded.client, stranger)
    ]

    assert (made[0], "MAKEWAY_ORDERS" in made[1]) == (0, True), made
    assert refused[0] == 1
    assert_for_people(refused[1], "does not admit this client", "or another client certificate")


@needs_go
@pytest.mark.parametrize("login", ["certificate", "mapped", "nkey", "creds"])
def test_the_plugins_client_gets_in_or_says_why_not(guarded: Guarded, tmp_path: Path, login: str) -> None:
    def tls(authority: Authority, client: KeyPair | None) -> dict[str, str]:
        shown = {"CertFile": str(client.certificate), "KeyFile": str(client.key)} if client else {}
        return {"CAFile": str(authority.certificate), **shown}

    url, ours = guarded.url, tls(guarded.authority, guarded.client)
    tried: dict[str, tuple[dict[str, object], str]]
    if login == "certificate":
        elsewhere = url.replace("127.0.0.1", "127.0.0.2")
        guarded.server.listen = "0.0.0.0"  # noqa: S104 - on an address that the certificate does not have
        guarded.admits("")
        tried = {
            "admitted": ({"TLS": ours}, ""),
            "none": ({"TLS": tls(guarded.authority, None)}, f"{NO_CERTIFICATE}; name one"),
            "other": (
                {"TLS": tls(guarded.authority, guarded.other.client("client"))},
                f"{OTHER_AUTHORITY}; name another one",
            ),
            "untrusted": ({"TLS": tls(guarded.other, guarded.client)}, f"{NOT_TRUSTED}: the authority"),
            "name": (
                {"TLS": ours, "URL": elsewhere},
                "its certificate is not valid for '127.0.0.2'; address",
            ),
        }
    elif login == "mapped":
        guarded.admits(MAPPED, mapped=True)
        stranger = tls(guarded.authority, guarded.authority.client("stranger"))
        tried = {
            "admitted": ({"TLS": ours}, ""),
            "other": ({"TLS": stranger}, "it does not admit this client; name another login"),
        }
    else:
        asks, right, wrong = keys_and_jwts(guarded, tmp_path)[login]
        guarded.admits(asks)
        field = {"nkey": "NkeySeedFile", "creds": "CredentialsFile"}[login]
        tried = {
            "admitted": ({"TLS": ours, field: str(right)}, ""),
            "other": ({"TLS": ours, field: str(wrong)}, "it does not admit this client; name another login"),
        }
    file = tmp_path / "tried.json"
    file.write_text(
        json.dumps(
            {
                name: {"Options": {"URL": url, **given}, "Refused": said}
                for name, (given, said) in tried.items()
            }
        )
    )

    go_test("-run=TestRealServersAdmitAndRefuse", "./natsbus", MAKEWAY_TEST_NATS_SERVERS=str(file))
