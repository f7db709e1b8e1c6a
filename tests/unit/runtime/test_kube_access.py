"""Tokens are renewed once for all who need one, and not waited for without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from makeway.runtime import kube_access
from makeway.runtime.kube_access import TOKEN_LIFE_SECONDS, Access, ConfigurationError


class Source:
    """A token's source, and the configuration that it fills."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.reads = 0

    async def load_and_set(self, client_configuration: Any) -> None:
        self.reads += 1
        await asyncio.sleep(self.seconds)

    async def get_api_key_with_prefix(self, _: str) -> str:
        return f"Bearer {self.reads}"


class Now:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_a_source_is_read_once_for_all_who_ask_at_the_same_time() -> None:
    source, now = Source(0.01), Now()
    access = Access(source, source, now)
    assert await access.authorization() == "Bearer 0"

    now.seconds = TOKEN_LIFE_SECONDS
    found = await asyncio.gather(*(access.authorization() for _ in range(20)))

    assert set(found) == {"Bearer 1"}


async def test_a_source_that_hangs_is_given_up_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_access, "RENEWAL_SECONDS", 0.05)
    source = Source(60)
    access = Access(source, source)
    access.expire()

    with pytest.raises(ConfigurationError, match="its source gave none"):
        await access.authorization()

    source.seconds = 0.0
    assert await access.authorization() == "Bearer 2"
