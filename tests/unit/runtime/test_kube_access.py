"""Tokens are renewed once for all who need one, and not waited for without end."""

import asyncio
from pathlib import Path

import pytest

from makeway.runtime import kube_access
from makeway.runtime.kube import ConfigurationError
from makeway.runtime.kube_access import TOKEN_LIFE_SECONDS, Access, load_access


class Source:
    """A token's source."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.reads = 0

    async def renew(self, access: Access, *, refused: bool) -> None:
        self.reads += 1
        await asyncio.sleep(self.seconds)
        access.api_key["BearerToken"] = f"Bearer {self.reads}"


async def authorization(access: Access) -> str | None:
    """The header's value, as a request would have it."""
    settings = await access.auth_settings()
    return str(settings["BearerToken"]["value"]) if settings else None


class Now:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_a_source_is_read_once_for_all_who_ask_at_the_same_time() -> None:
    source, now = Source(0.01), Now()
    access = Access(source, now)
    access.api_key["BearerToken"] = "Bearer 0"
    assert await authorization(access) == "Bearer 0"

    now.seconds = TOKEN_LIFE_SECONDS
    found = await asyncio.gather(*(authorization(access) for _ in range(20)))

    assert set(found) == {"Bearer 1"}


async def test_a_source_that_hangs_is_given_up_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_access, "RENEWAL_SECONDS", 0.05)
    source = Source(60)
    access = Access(source)
    access.expire()

    with pytest.raises(ConfigurationError, match="its source gave none"):
        await authorization(access)

    source.seconds = 0.0
    assert await authorization(access) == "Bearer 2"


class Broken(Source):
    async def renew(self, access: Access, *, refused: bool) -> None:
        self.reads += 1
        raise OSError("the file is gone")


async def test_what_a_source_said_last_serves_until_it_is_refused() -> None:
    source, now = Broken(), Now()
    access = Access(source, now)
    access.api_key["BearerToken"] = "Bearer 0"

    now.seconds = TOKEN_LIFE_SECONDS
    assert [await authorization(access) for _ in range(2)] == ["Bearer 0"] * 2
    assert source.reads == 1, "not for each request"
    now.seconds += kube_access.RENEWAL_SECONDS
    assert await authorization(access) == "Bearer 0"

    access.expire()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="the file is gone"):
            await authorization(access)


def account(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_access, "SERVICE_TOKEN_FILENAME", str(directory / "token"))
    monkeypatch.setattr(kube_access, "SERVICE_CERT_FILENAME", str(directory / "ca.crt"))
    (directory / "ca.crt").write_text("authority")


async def test_a_pod_uses_its_account_and_reads_the_token_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account(tmp_path, monkeypatch)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("one\n")
    access = await load_access(None, None)

    assert access.host == "https://[fd00::1]:443"
    assert access.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert await authorization(access) == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    access.expire()
    assert await authorization(access) == "Bearer two"


async def test_an_account_without_a_token_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account(tmp_path, monkeypatch)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("")

    with pytest.raises(ConfigurationError, match="in-cluster configuration: Token file exists but empty"):
        await load_access(None, None)
