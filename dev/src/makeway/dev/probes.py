"""Ask a process whether it is ready.

A probe answers "" for yes, else why not; it never raises and never waits long.
"""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable

Probe = Callable[[], str]

_TIMEOUT_SECONDS = 2.0


def http_ok(url: str, context: ssl.SSLContext | None = None) -> Probe:
    """Ready when a GET of the URL answers 200."""

    def probe() -> str:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS, context=context):  # noqa: S310
                return ""
        except urllib.error.HTTPError as error:
            body = error.read(2000).decode(errors="replace").strip()
            return f"{url} answered {error.code}: {body}"
        except (OSError, http.client.HTTPException) as error:
            return f"{url}: {error}"

    return probe


def has_streams(monitor: str, count: int) -> Probe:
    """Ready when a nats-server holds so many streams; `monitor`: the URL of its monitoring port."""

    def probe() -> str:
        try:
            with urllib.request.urlopen(f"{monitor}/jsz", timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
                held = json.load(answer)["streams"]
        except (OSError, http.client.HTTPException, KeyError, ValueError) as error:
            return f"{monitor}: {error}"
        return "" if held >= count else f"{held} of {count} streams are there"

    return probe


def unverified() -> ssl.SSLContext:
    """A context for a server on loopback whose certificate is not checked."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
