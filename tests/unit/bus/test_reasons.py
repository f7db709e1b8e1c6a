"""Errors in words: what a person reads has no class, no errno and no codec in it."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl

import pytest

from makeway.bus.reasons import reason_of


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


async def test_a_port_where_none_listens_refuses() -> None:
    with pytest.raises(OSError, match="Connect call failed") as raised:
        await asyncio.open_connection("localhost", 9)

    assert not re.search(r"Errno|call failed|\(", reason_of(raised.value))
