"""NATS with logins and certificates as `makeway streams --keep` makes them."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.bus.errors import BusError
from makeway.bus.nats.connection import ConnectionTimings
from makeway.bus.nats.login import Login
from makeway.cli.connect.nats import _Keys, _logged_in
from makeway.cli.keys.making import PASSWORDS, SERVER, SecretContents, contents, login
from makeway.runtime import tls
from makeway.runtime.settings import NatsSettings
from unit.bus.test_connection_to_nats import reconnected
from unit.cli.test_made_secrets import CHOSEN, WANTED, chosen

pytestmark = pytest.mark.nats

QUICK = ConnectionTimings(connect=5, probe_interval=0.2, probe_timeout=0.3)
LEFT = timedelta(seconds=20)
"""How long the certificates of the test are valid still."""


def users_of(made: SecretContents, directory: Path) -> str:
    """Write the passwords for NATS; gives its configuration of all logins."""
    (directory / "passwords.conf").write_text(made.secrets[PASSWORDS]["passwords.conf"])
    names = {user: f"{user.upper().replace('-', '_')}_PASSWORD" for user in WANTED.users}
    users = [f"{{ user: {user}, password: ${name} }}" for user, name in names.items()]
    return f"include passwords.conf\nauthorization {{ users: [{', '.join(users)}] }}"


@pytest.mark.parametrize("password", CHOSEN)
async def test_whoever_has_a_password_of_a_persons_choice_is_let_in(
    nats_server: NatsServer, tmp_path: Path, password: str
) -> None:
    made = chosen(password)
    (tmp_path / "password").write_text(password)
    nats_server.extra = users_of(made, tmp_path)
    nats_server.restart()
    server = f"127.0.0.1:{nats_server.port}"
    by_url = made.secrets[login("viewer")]["url"].partition("@")[0]
    by_command = _logged_in(f"nats://{server}", _Keys(user=b"viewer", password=password.encode()))

    await (await Bus.connect(f"{by_url}@{server}", name="test/url", timings=QUICK)).close()
    await (await Bus.connect(by_command, name="test/command", timings=QUICK)).close()
    by_file = Login("viewer", tmp_path / "password")
    await (await Bus.connect(f"nats://{server}", name="test/file", login=by_file, timings=QUICK)).close()
    with pytest.raises(BusError):
        await Bus.connect(f"nats://viewer:{password[:1]}@{server}", name="test/wrong", timings=QUICK)


def installed(made: SecretContents, directory: Path, name: str) -> Path:
    """Write what a Secret holds, as a kubelet does."""
    directory.mkdir(exist_ok=True)
    for key, text in made.secrets[name].items():
        (directory / key).write_text(text)
    return directory


def settings(url: str, directory: Path) -> NatsSettings:
    return NatsSettings(
        url=url,
        user="planner",
        password_file=directory / "password",
        tls_ca=directory / "ca.crt",
        tls_cert=directory / "tls.crt",
        tls_key=directory / "tls.key",
    )


async def connected(nats: NatsSettings) -> Bus:
    return await Bus.connect(
        nats.servers(), name="planner/one", login=nats.login(), tls=nats.tls(), timings=QUICK
    )


async def test_a_part_connects_again_by_certificates_that_were_renewed_before_the_old_ones_ended(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "POLL_SECONDS", 0.0)
    ends = datetime.now(UTC) + LEFT
    made = contents(WANTED, SecretContents(), ends - timedelta(days=WANTED.certificate_days))
    files, old = tmp_path / "planner", installed(made, tmp_path / "old", login("planner"))
    served = installed(made, tmp_path / "served", SERVER)
    installed(made, files, login("planner"))
    nats_server.extra = f"""
      {users_of(made, tmp_path)}
      tls {{ cert_file: "{served}/tls.crt", key_file: "{served}/tls.key",
             ca_file: "{served}/ca.crt", verify: true }}
    """
    nats_server.restart()
    bus = await connected(settings(nats_server.url, files))
    try:
        renewed = contents(WANTED, made, datetime.now(UTC))
        installed(renewed, files, login("planner"))
        installed(renewed, served, SERVER)
        nats_server.reload()
        await (await connected(settings(nats_server.url, old))).close()  # both count until the old ones end
        await asyncio.sleep((ends - datetime.now(UTC)).total_seconds())

        with pytest.raises(BusError):
            await connected(settings(nats_server.url, old))
        nats_server.restart()
        await reconnected(bus)
    finally:
        await bus.close()
