"""Certificates that are rotated under a running process: read again when their files change."""

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from makeway.dev.pki import Authority, KeyPair
from makeway.runtime.kube import Api, ApiUnavailable
from makeway.runtime.settings import nats_tls
from makeway.runtime.tls import POLL_SECONDS, ReloadedContext
from served import served


@asynccontextmanager
async def serving(pair: KeyPair, client_ca: Path, port: int = 0) -> AsyncIterator[int]:
    """An API server that asks for client certificates; every request is answered by the client's name."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client_ca))
    context.load_cert_chain(pair.certificate, pair.key)
    context.verify_mode = ssl.CERT_REQUIRED

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        return web.Response(text=subject[0][0][1])

    async with served(answer, port=port, context=context) as found:
        yield found


def put(source: Path, target: Path) -> None:
    """Replace a file as the kubelet does: by another one, at once."""
    new = target.with_suffix(".new")
    new.write_bytes(source.read_bytes())
    os.replace(new, target)


async def test_a_rotated_authority_and_a_renewed_client_certificate_are_read_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makeway.runtime.tls.POLL_SECONDS", 0.0)
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    files = {name: tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key")}

    def install(authority: Authority, user: str) -> None:
        client = authority.client(user)
        put(authority.certificate, files["ca.crt"])
        put(client.certificate, files["tls.crt"])
        put(client.key, files["tls.key"])

    install(old, "before")
    async with serving(old.serving("api"), old.certificate) as port:
        cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(files["ca.crt"])}
        user = {"client-certificate": str(files["tls.crt"]), "client-key": str(files["tls.key"])}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        api = await Api.connect(kubeconfig=str(tmp_path / "kubeconfig"), user_agent="test")
        assert await api.request("GET", "/x") == b"before"

    try:
        async with serving(new.serving("api"), new.certificate, port):
            with pytest.raises(ApiUnavailable, match="certificate"):
                await api.request("GET", "/x")
            install(new, "after")
            assert await api.request("GET", "/x") == b"after"
    finally:
        await api.close()


def test_files_that_cannot_be_used_change_nothing_and_are_looked_at_again(tmp_path: Path) -> None:
    now = 0.0
    made: list[str] = []
    file = tmp_path / "ca.crt"

    def make() -> ssl.SSLContext:
        text = file.read_text()
        if text == "half":
            raise ssl.SSLError("no certificate")
        made.append(text)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    file.write_text("one")
    tls = ReloadedContext(make, [str(file), None], clock=lambda: now)
    first = tls.current()
    file.write_text("half")
    now += POLL_SECONDS
    assert tls.current() is first
    file.unlink()
    now += POLL_SECONDS
    assert tls.current() is first
    file.write_text("another")
    assert tls.current() is first, "not looked at before its time"
    now += POLL_SECONDS
    assert tls.current() is not first
    assert made == ["one", "another"]


def test_a_key_with_a_pass_phrase_is_refused_and_asks_for_none(tmp_path: Path) -> None:
    client = Authority(tmp_path / "ca").client("planner")
    key = load_pem_private_key(client.key.read_bytes(), None)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"secret")
    )
    client.key.write_bytes(encrypted)

    with pytest.raises(ValueError, match=r"TLS for NATS: .*: the key has a pass phrase"):
        nats_tls(None, client.certificate, client.key)
