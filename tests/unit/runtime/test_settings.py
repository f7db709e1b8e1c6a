"""How options become what a connection is made with."""

from pathlib import Path

import pytest

from makeway.bus.nats.login import Login
from makeway.runtime.settings import NatsSettings


def test_a_user_logs_in_with_the_password_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")

    login = NatsSettings(user="planner", password_file=file).login()

    assert isinstance(login, Login)
    assert (login.user, login.password()) == ("planner", "secret")


def test_two_ways_to_log_in_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")

    with pytest.raises(ValueError, match="two logins"):
        NatsSettings(user="a", password_file=tmp_path / "password", nkey=tmp_path / "nk").login()


def test_no_user_logs_in_where_none_is_named() -> None:
    assert NatsSettings().login() is None


def test_a_user_without_a_password_is_refused(tmp_path: Path) -> None:
    for settings in (NatsSettings(user="planner"), NatsSettings(password_file=tmp_path / "password")):
        with pytest.raises(ValueError, match="--nats-user and --nats-password-file go together"):
            settings.login()


def test_a_password_that_cannot_be_read_is_said_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--nats-password-file .*none: .*[Nn]o such file"):
        NatsSettings(user="planner", password_file=tmp_path / "none").login()
