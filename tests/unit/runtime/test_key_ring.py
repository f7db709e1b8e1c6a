"""Keys of signatures as they are read, changed, lost and rotated."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from builders_keys import KEYS, PUBLIC_DATA
from makeway.bus import metrics
from makeway.bus.signing.keys import SigningKey, SigningKind
from makeway.bus.signing.signatures import SignatureMode, Signatures
from makeway.runtime.key_ring import KNOWN_POLLS, RETIRED_SECONDS, KeyRing, KeysMissingError
from makeway.runtime.kube import ApiError, ApiUnavailable

KIND = SigningKind.OUTCOME
OWN = KEYS[KIND]


class FakeApi:
    """An API server with the one ConfigMap; `error` instead of an answer."""

    def __init__(self) -> None:
        self.data: Mapping[str, str] = PUBLIC_DATA
        self.error: Exception | None = None
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **_: object) -> bytes:
        self.asked.append(f"{method} {path}")
        if self.error is not None:
            raise self.error
        return msgspec.json.encode({"metadata": {"name": "makeway-keys"}, "data": self.data})


class World:
    """An evictor's key ring, with its file and its API server."""

    def __init__(self, directory: Path, mode: SignatureMode = "require", *, written: bool = True) -> None:
        self.api = FakeApi()
        self.file = directory / "outcome.pem"
        if written:
            self.file.write_bytes(OWN.to_pem())
        self.signatures = Signatures(mode)
        self.seconds = 0.0
        self.ring = KeyRing(
            self.api,
            self.signatures,
            kinds=(KIND,),
            directory=directory,
            namespace="makeway-system",
            seconds=lambda: self.seconds,
        )

    async def poll(self, times: int = 1) -> str:
        """Read again; the id of the key that signs now."""
        for _ in range(times):
            await self.ring._poll()
        return self.signatures.signing[KIND].key_id

    def publish(self, *keys: SigningKey) -> None:
        """Put public keys of outcomes into the ConfigMap."""
        self.api.data = {**PUBLIC_DATA, "outcome.pem": "".join(key.public_pem() for key in keys)}


async def test_both_are_read_before_the_start(tmp_path: Path) -> None:
    world = World(tmp_path)

    await world.ring.read_first()

    assert world.signatures.signing[KIND].key_id == OWN.key_id
    assert set(world.signatures.public.by_kind) == set(SigningKind)
    assert world.api.asked == ["GET /api/v1/namespaces/makeway-system/configmaps/makeway-keys"]
    assert world.ring.trouble() == ""


@pytest.mark.parametrize("content", [None, b"", b"not a key"])
async def test_a_required_key_missing_or_bad_is_waited_for(tmp_path: Path, content: bytes | None) -> None:
    world = World(tmp_path, written=False)
    if content is not None:
        world.file.write_bytes(content)

    with pytest.raises(KeysMissingError, match=r"outcome\.pem"):
        await world.ring.read_first()

    assert "outcome.pem" in world.ring.unhealthy()


async def test_without_public_keys_nothing_starts(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.api.error = ApiError(404, "NotFound", "not there")

    with pytest.raises(KeysMissingError, match="ConfigMap makeway-system/makeway-keys is missing"):
        await world.ring.read_first()


@pytest.mark.parametrize("mode", ["off", "log"])
async def test_where_not_required_missing_keys_stop_no_start(tmp_path: Path, mode: SignatureMode) -> None:
    world = World(tmp_path, mode, written=False)
    world.api.error = ApiUnavailable("timed out")

    await world.ring.read_first()

    assert world.ring.unhealthy() == ""


async def test_off_asks_for_no_public_keys(tmp_path: Path) -> None:
    world = World(tmp_path, "off")

    await world.ring.read_first()

    assert world.api.asked == []


async def test_what_was_good_last_counts_where_the_rest_is_bad(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.ring.read_first()
    before = world.signatures.public

    world.file.write_bytes(b"half a k")
    for data in (
        {**PUBLIC_DATA, "order.pem": "no key"},
        {**PUBLIC_DATA, "order.pem": PUBLIC_DATA["order.pem"] * 3},
    ):
        world.api.data = data
        assert await world.poll() == OWN.key_id
        assert world.signatures.public is before
        assert "order.pem" in world.ring.trouble()
    world.api.error = ApiUnavailable("timed out")

    assert await world.poll() == OWN.key_id
    assert world.ring.unhealthy() == ""
    assert "timed out" in world.ring.trouble()


async def test_a_new_private_key_signs_once_all_others_know_it(tmp_path: Path) -> None:
    world, new = World(tmp_path), SigningKey.new()
    await world.ring.read_first()
    world.file.write_bytes(new.to_pem())

    assert await world.poll(KNOWN_POLLS) == OWN.key_id, "it is not published"
    world.publish(OWN, new)
    assert await world.poll(KNOWN_POLLS) == OWN.key_id, "others may not have read it yet"
    assert await world.poll() == new.key_id
    assert world.ring.trouble() == ""


async def test_where_a_key_was_replaced_nothing_is_signed_until_others_know_it(tmp_path: Path) -> None:
    world, new = World(tmp_path), SigningKey.new()
    await world.ring.read_first()
    world.file.write_bytes(new.to_pem())
    world.publish(new)

    assert await world.poll(2) == OWN.key_id
    assert OWN.key_id in world.signatures.unpublished(KIND)
    assert await world.poll() == new.key_id
    assert world.signatures.unpublished() == ""


async def test_a_key_that_was_replaced_is_remembered_for_ten_minutes(tmp_path: Path) -> None:
    world, new = World(tmp_path), SigningKey.new()
    await world.ring.read_first()
    world.publish(new)
    await world.poll()

    def remembered() -> bool:
        return any(OWN.key_id in keys.by_kind.get(KIND, {}) for keys in world.signatures.retired)

    assert remembered()
    world.seconds += RETIRED_SECONDS
    await world.poll()
    assert remembered()
    world.seconds += 1
    await world.poll()
    assert not remembered()
    assert world.signatures.retired == ()


async def test_a_key_that_the_others_refuse_is_told_of(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(SigningKey.new())

    with capture_logs() as logs:
        await world.ring.read_first()

    assert OWN.key_id in world.ring.unhealthy()
    assert [line["event"] for line in logs].count("keys_unreadable") == 1
    assert metrics.SIGNING_KEY_UNKNOWN.labels("outcome")._value.get() == 1
