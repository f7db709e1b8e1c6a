"""Certificates that are made in the cluster: when they are issued anew, and by whom."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from makeway.cli.keys.making import AUTHORITY, PASSWORDS, SERVER, SecretContents, contents, login
from unit.cli.test_made_secrets import ALL, NOW, WANTED, Refuses, ensured


def certificate_ends(made: SecretContents, name: str, key: str = "tls.crt") -> datetime:
    return x509.load_pem_x509_certificate(made.secrets[name][key].encode()).not_valid_after_utc


def test_certificates_are_issued_anew_at_two_thirds_of_their_life_and_not_before() -> None:
    early, late = NOW + timedelta(days=19), NOW + timedelta(days=21)
    assert contents(WANTED, ALL, early) == ALL

    renewed = contents(WANTED, ALL, late)

    for name in (SERVER, *map(login, WANTED.users)):
        assert certificate_ends(renewed, name) == late + timedelta(days=30)
        assert renewed.secrets[name]["ca.crt"] == renewed.secrets[AUTHORITY]["tls.crt"]
        assert renewed.secrets[name].get("password") == ALL.secrets[name].get("password")
    assert contents(WANTED, renewed, late) == renewed


def test_certificates_of_a_clock_that_was_years_ahead_are_issued_anew_and_of_one_by_minutes_kept() -> None:
    ahead = contents(WANTED, SecretContents(), NOW + timedelta(days=3000))
    minutes = contents(WANTED, SecretContents(), NOW + timedelta(hours=2))

    assert certificate_ends(contents(WANTED, ahead, NOW), SERVER) == NOW + timedelta(days=30)
    assert contents(WANTED, minutes, NOW) == minutes


def test_what_was_issued_before_and_after_a_renewal_verifies_with_either_authority() -> None:
    renewed = contents(WANTED, ALL, NOW + timedelta(days=21))

    for authority in (ALL, renewed):
        store = Store(x509.load_pem_x509_certificates(authority.secrets[AUTHORITY]["tls.crt"].encode()))
        builder = PolicyBuilder().store(store).time(NOW + timedelta(days=22))
        for issued in (ALL, renewed):
            leaf = x509.load_pem_x509_certificate(issued.secrets[SERVER]["tls.crt"].encode())
            builder.build_server_verifier(x509.DNSName("makeway-nats")).verify(leaf, [])


def test_a_certificate_that_was_issued_later_is_renewed_later() -> None:
    more = replace(WANTED, users=(*WANTED.users, "evictor"))
    later = contents(more, ALL, NOW + timedelta(days=10))

    renewed = contents(more, later, NOW + timedelta(days=21))

    assert certificate_ends(later, login("evictor")) == NOW + timedelta(days=40)
    assert renewed.secrets[login("evictor")]["ca.crt"] == renewed.secrets[AUTHORITY]["tls.crt"]


def test_a_login_that_comes_later_gets_a_certificate_and_the_others_keep_theirs() -> None:
    more = replace(WANTED, users=(*WANTED.users, "evictor"))

    again = contents(more, ALL, NOW)

    assert set(again.secrets) - set(ALL.secrets) == {login("evictor")}
    assert again.secrets[login("evictor")]["ca.crt"] == ALL.secrets[AUTHORITY]["tls.crt"]
    assert {name for name in ALL.secrets if again.secrets[name] != ALL.secrets[name]} == {PASSWORDS}


def test_certificates_of_your_own_leave_none_that_was_made_with_a_login() -> None:
    switched = contents(replace(WANTED, certificate_days=0), ALL, NOW)

    assert set(switched.secrets[login("viewer")]) == {"user", "password", "url"}
    assert contents(WANTED, switched, NOW).secrets[login("viewer")]["ca.crt"]


async def test_nothing_is_stored_of_what_an_authority_has_issued_that_is_not_stored(tmp_path: Path) -> None:
    cluster = Refuses()
    before = await ensured(cluster, tmp_path)
    cluster.name = AUTHORITY
    writes = cluster.version

    late = await ensured(cluster, tmp_path, now=NOW + timedelta(days=21))

    assert cluster.version == writes, "else each look would issue all of it by another authority"
    assert late.secrets == before.secrets
    cluster.name = ""
    assert (await ensured(cluster, tmp_path, now=NOW + timedelta(days=21))).secrets != before.secrets
    assert cluster.version == writes + len(WANTED.users) + 2
