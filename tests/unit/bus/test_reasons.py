"""Errors in words: what a person reads has no class, no errno and no codec in it."""

import asyncio
import re
import socket
import ssl

import pytest

from makeway.bus.reasons import reason_of, wrong_in_tls


def decoding() -> UnicodeDecodeError:
    try:
        b"ab\xff".decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (OSError(113, "Connect call failed ('10.0.0.1', 4222)"), "no route to host"),
        (
            OSError(
                "Multiple exceptions: [Errno 111] Connect call failed ('::1', 9), [Errno 111] Connect call"
            ),
            "connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (TimeoutError(), "timed out"),
        (TimeoutError(110, "Connect call failed ('10.0.0.1', 1)"), "connection timed out"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "no such file or directory"),
        (decoding(), "it is not text in UTF-8, from byte 2 on"),
        (ValueError("a value of ours"), "a value of ours"),
        (ConnectionResetError(), "no answer"),
        (asyncio.IncompleteReadError(b"", 3), "0 bytes read on a total of 3 expected bytes"),
        (ValueError(), "no reason was given (ValueError)"),
    ],
)
def test_an_error_is_told_in_words(error: BaseException, said: str) -> None:
    assert reason_of(error) == said


def test_a_certificate_that_is_not_trusted_is_said_to_be_that() -> None:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] ... (_ssl.c:1006)")
    error.verify_message = "unable to get local issuer certificate"

    assert reason_of(error) == "its certificate is not trusted: unable to get local issuer certificate"


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] {reason.lower()} (_ssl.c:2580)")
    error.reason = reason
    return error


def untrusted(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, f"[SSL: CERTIFICATE_VERIFY_FAILED] {message} (_ssl.c:1006)")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("error", "said", "wrong"),
    [
        (
            tls_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"),
            "it asks for a client certificate, and got none",
            "client",
        ),
        (
            tls_error("TLSV1_ALERT_UNKNOWN_CA"),
            "it does not trust the authority of the client certificate",
            "client",
        ),
        (tls_error("KEY_VALUES_MISMATCH"), "certificate and key do not belong together", ""),
        (
            ssl.SSLError(524297, "[SSL] PEM lib (_ssl.c:3926)"),
            "there is no certificate or key in PEM in it",
            "",
        ),
        (tls_error("TLSV1_ALERT_INTERNAL_ERROR"), "TLS failed: tlsv1 alert internal error", ""),
        (
            untrusted(62, "Hostname mismatch, certificate is not valid for 'nats.nats.svc'."),
            "its certificate is not valid for 'nats.nats.svc'",
            "name",
        ),
        (
            untrusted(19, "self-signed certificate in certificate chain"),
            "its certificate is not trusted: self-signed certificate in certificate chain",
            "authority",
        ),
        (
            untrusted(10, "certificate has expired"),
            "its certificate is not trusted: certificate has expired",
            "",
        ),
        (ConnectionResetError(), "no answer", ""),
    ],
)
def test_what_is_wrong_in_tls_is_told_without_openssls_names(
    error: BaseException, said: str, wrong: str
) -> None:
    assert reason_of(error) == said
    assert wrong_in_tls(error) == wrong


def test_an_address_that_is_taken_is_told_in_the_systems_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use") as error:
        socket.create_server(taken.getsockname())

    assert reason_of(error.value) == "address already in use"


async def test_a_port_where_none_listens_refuses() -> None:
    with pytest.raises(OSError, match="Connect call failed") as raised:
        await asyncio.open_connection("localhost", 9)

    assert not re.search(r"Errno|call failed|\(", reason_of(raised.value))
