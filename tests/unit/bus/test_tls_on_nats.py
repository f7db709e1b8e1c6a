"""NATS with certificates of a private authority: verified, mutual, rotated, and never in clear unnoticed."""

import asyncio
import os
from pathlib import Path

import pytest

from fixtures_nats import ConnectBus, NatsServer
from makeway.bus.client import Bus
from makeway.bus.errors import BusRefused, BusUnavailable
from makeway.bus.nats.connection import ConnectionTimings
from makeway.dev.pki import Authority
from makeway.runtime.settings import NatsSettings, nats_tls
from unit.bus.test_connection_to_nats import reconnected

pytestmark = pytest.mark.nats

QUICK = ConnectionTimings(connect=3, probe_interval=0.2, probe_timeout=0.3)


def certified(server: NatsServer, authority: Authority) -> None:
    """Have the server ask for TLS and for client certificates of an authority."""
    pair = authority.serving("nats")
    server.extra = f"""
      tls {{ cert_file: "{pair.certificate}", key_file: "{pair.key}",
             ca_file: "{authority.certificate}", verify: true }}
    """
    server.restart()


def put(source: Path, target: Path) -> None:
    new = target.with_suffix(".new")
    new.write_bytes(source.read_bytes())
    os.replace(new, target)


class Files:
    """Files as a mounted Secret has them."""

    def __init__(self, directory: Path) -> None:
        self.ca, self.cert, self.key = (directory / name for name in ("ca.crt", "tls.crt", "tls.key"))

    def install(self, authority: Authority) -> None:
        client = authority.client("planner")
        put(authority.certificate, self.ca)
        put(client.certificate, self.cert)
        put(client.key, self.key)

    def settings(self, url: str) -> NatsSettings:
        return NatsSettings(url=url, tls_ca=self.ca, tls_cert=self.cert, tls_key=self.key)


async def test_rotated_certificates_are_used_by_the_next_connection_without_a_restart(
    nats_server: NatsServer, connect_bus: ConnectBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makeway.runtime.tls.POLL_SECONDS", 0.0)
    old, new, files = Authority(tmp_path / "old"), Authority(tmp_path / "new"), Files(tmp_path)
    files.install(old)
    certified(nats_server, old)
    bus = await connect_bus(timings=QUICK, tls=files.settings(nats_server.url).tls())

    back = asyncio.create_task(reconnected(bus))
    await asyncio.sleep(0)
    nats_server.kill()
    files.install(new)
    certified(nats_server, new)

    await back
    await bus.connection.round_trip()


async def test_a_server_that_does_not_ask_for_tls_is_refused_where_tls_was_configured(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    tls = nats_tls(Authority(tmp_path / "pki").certificate, None, None)

    with pytest.raises(BusUnavailable, match="would be in clear"):
        await Bus.connect(nats_server.url, name="test/one", tls=tls, timings=QUICK)
    for url in ("tls://", "nats://127.0.0.1:1,tls://"):
        with pytest.raises(BusUnavailable, match="would be in clear"):
            await Bus.connect(f"{url}127.0.0.1:{nats_server.port}", name="test/one", timings=QUICK)


async def test_no_login_is_sent_to_a_server_that_does_not_ask_for_tls() -> None:
    """As to one that stands between: it has read the password before the connection is refused."""
    heard = b""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        writer.write(
            b'INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"auth_required":true}\r\n'
        )
        heard += await reader.read(1000)
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(BusRefused, match="would be in clear"):
            await Bus.connect(f"tls://planner:secret@127.0.0.1:{port}", name="test/one", timings=QUICK)

    assert heard == b""


async def test_the_certificates_name_may_differ_from_the_url(nats_server: NatsServer, tmp_path: Path) -> None:
    """As through a forwarded port: the URL says 127.0.0.1, the certificate the Service's name."""
    authority, files = Authority(tmp_path / "pki"), Files(tmp_path)
    files.install(authority)
    certified(nats_server, authority)
    tls = files.settings(nats_server.url).tls()

    async def connects(hostname: str) -> None:
        bus = await Bus.connect(
            nats_server.url, name="test/one", tls=tls, tls_hostname=hostname, timings=QUICK
        )
        await bus.close()

    await connects("kubernetes.default.svc")  # one of the names on the certificate
    with pytest.raises(BusUnavailable, match=r"doesn't match|not valid for"):
        await connects("nats.nats.svc")


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nothing")

    with pytest.raises(ValueError, match=r"ca\.crt"):
        nats_tls(tmp_path / "ca.crt", None, None)
    with pytest.raises(ValueError, match="give both"):
        nats_tls(None, tmp_path / "ca.crt", None)
    assert nats_tls(None, None, None) is None
