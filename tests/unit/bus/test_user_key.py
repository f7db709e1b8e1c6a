"""Who a client is to NATS: keys of users, with and without a JWT, on a real server, and what is no key."""

import base64
import json
import secrets
from pathlib import Path

import nkeys  # type: ignore[import-untyped] # it has no types
import pytest

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.errors import BusUnavailable
from makeway.bus.nats.connection import ConnectionTimings
from makeway.bus.nats.user_key import (
    LoginUnusable,
    credentials_file,
    key_login,
    parse_credentials,
    parse_seed,
    seed_file,
)
from nats_operator import Identity, Operator
from unit.bus.test_connection_to_nats import reconnected

QUICK = ConnectionTimings(connect=3, probe_interval=0.2, probe_timeout=0.3)


def admits(server: NatsServer, *users: Identity) -> None:
    """Have the server let in who has one of these keys, and no other."""
    server.extra = f"authorization {{ users: {json.dumps([{'nkey': user.public} for user in users])} }}"
    server.restart()


@pytest.mark.nats
async def test_a_renewed_nkey_is_used_by_the_next_connection_and_half_a_file_is_waited_out(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    old, new = Identity("user"), Identity("user")
    admits(nats_server, old)
    file = tmp_path / "nats.nk"
    file.write_text(old.seed)
    bus = await Bus.connect(nats_server.url, name="test/one", login=seed_file(file), timings=QUICK)
    try:
        file.write_text(new.seed[:20])
        admits(nats_server, new)
        with pytest.raises(BusUnavailable):
            await bus.connection.round_trip()
        file.write_text(new.seed)
        if bus.disconnected():
            await reconnected(bus)

        await bus.connection.round_trip()
    finally:
        await bus.close()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "NATS USER JWT"),
        ("-----BEGIN NATS USER JWT-----\n", "NATS USER JWT"),
        ("-----BEGIN NATS USER JWT-----\ne30.e30.x\n------END NATS USER JWT------\n", "USER NKEY SEED"),
        (Operator().credentials("a").replace("\nSU", "\nSA"), "seed"),
    ],
    ids=["empty", "no-token", "no-seed", "seed-of-an-account"],
)
def test_credentials_without_a_part_are_refused_at_once(tmp_path: Path, text: str, wrong: str) -> None:
    """nats-py's own reader looks for a JWT that is not there for ever."""
    file = tmp_path / "nats.creds"
    file.write_text(text)

    with pytest.raises(LoginUnusable, match=rf"{file}.*{wrong}"):
        credentials_file(file).key()


@pytest.mark.parametrize(
    "seed",
    [
        b"",
        b"SU",
        b"not base 32 at all",
        Identity("user").seed.encode()[:-4],
        Identity("account").seed.encode(),
        Identity("user").public.encode(),
        b"\xff\xfe",
        Identity("user").seed.encode().replace(b"SU", b"SUA"),
    ],
    ids=["empty", "prefix", "text", "cut", "of-an-account", "public", "bytes", "letter-more"],
)
def test_a_seed_is_a_whole_one_of_a_user(seed: bytes) -> None:
    with pytest.raises(ValueError, match="seed"):
        parse_seed(seed)


def test_a_wrong_letter_in_a_seed_is_noticed() -> None:
    raw = bytearray(base64.b32decode(Identity("user").seed + "======"))
    raw[10] ^= 1

    with pytest.raises(ValueError, match="not all of it"):
        parse_seed(base64.b32encode(bytes(raw)).rstrip(b"="))


def test_the_public_key_is_as_nats_writes_it() -> None:
    user = Identity("user")

    public = parse_seed(user.seed.encode()).public()

    assert public == nkeys.from_seed(bytearray(user.seed.encode())).public_key.decode()
    assert public == user.public


def test_no_error_and_no_repr_shows_a_key(tmp_path: Path) -> None:
    operator = Operator()
    text = operator.credentials("planner")
    secret = secrets.token_hex(8)
    file = tmp_path / "nats.nk"
    file.write_text(f"SU{secret}")

    with pytest.raises(LoginUnusable) as caught:
        seed_file(file).key()

    assert secret not in str(caught.value)
    key = parse_credentials(text.encode())
    assert key.jwt in text
    assert key.jwt not in repr(key)


def test_two_logins_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give one"):
        key_login(tmp_path, tmp_path)
    assert key_login(None, None) is None
