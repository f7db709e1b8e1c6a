"""Why something could not be reached or read, in words for people. Pure."""

from __future__ import annotations

import os
import re
import ssl
from typing import Final

_NUMBER: Final = re.compile(r"\[Errno (-?\d+)\] ?")
_CALL: Final = re.compile(r"Connect call failed \(.*\)")
_OF_PYTHON: Final = " (while attempting to bind on address"
"""How socket.create_server goes on behind the system's words, with an address as Python writes it."""

_SEVERAL: Final = "Multiple exceptions: "

_OTHER_NAMES: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_UNKNOWN_ISSUERS: Final = (18, 19, 20, 21)
"""Its X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT and those that follow: no authority vouches for it."""

_NO_CLIENT_CERTIFICATE: Final = "it asks for a client certificate, and got none"
_OF_TLS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _NO_CLIENT_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of the client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it refuses the client certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it refuses the client certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it refuses the client certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that the client certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it says that the client certificate was revoked",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "KEY_VALUES_MISMATCH": "certificate and key do not belong together",
    "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate in PEM in it",
    "NO_START_LINE": "there is no certificate or key in PEM in it",
}
"""What OpenSSL's reasons mean. "it" is whom the connection is to, or the file."""


def reason_of(error: BaseException) -> str:
    """Return what went wrong, beginning with a small letter where the words are the system's.

    An error of ours, or of a server's, is passed on as it says itself.
    """
    # aiohttp's errors of a connection carry the system's.
    inner = getattr(error, "os_error", None)
    if isinstance(inner, OSError) and inner is not error:
        return reason_of(inner)
    if found := getattr(error, "verify_message", ""):
        if getattr(error, "verify_code", 0) in _OTHER_NAMES:
            return f"its certificate is {found.rpartition(', certificate is ')[2].rstrip('.')}"
        return f"its certificate is not trusted: {found}"
    match error:
        case UnicodeDecodeError():
            return f"it is not text in UTF-8, from byte {error.start} on"
        case UnicodeEncodeError():
            return f"{error.object[error.start : error.end]!r} cannot be written in {error.encoding.upper()}"
        case TimeoutError() if not error.errno:
            return "timed out"
        case ssl.SSLError():
            return _of_tls(error)
        case OSError():
            return _of_the_system(error)
    return str(error) or f"no reason was given ({type(error).__name__})"


def wrong_in_tls(error: BaseException) -> str:
    """Return what has to change for TLS: `client`, `authority` or `name`; empty for what else went wrong.

    client: the client certificate that is shown. authority: those that are trusted. name: by which the server
    is addressed.
    """
    match error:
        case ssl.SSLCertVerificationError(verify_code=code) if code in _OTHER_NAMES:
            return "name"
        case ssl.SSLCertVerificationError(verify_code=code) if code in _UNKNOWN_ISSUERS:
            return "authority"
        case ssl.SSLError() if "client certificate" in _of_tls(error):
            return "client"
    return ""


def _of_tls(error: ssl.SSLError) -> str:
    reason = getattr(error, "reason", None) or ""
    if said := _OF_TLS.get(reason):
        return said
    if not reason and "PEM lib" in str(error):
        return "there is no certificate or key in PEM in it"
    return f"TLS failed: {reason.replace('_', ' ').lower()}" if reason else _of_the_system(error)


def _of_the_system(error: OSError) -> str:
    text = str(error)
    if text.startswith(_SEVERAL):
        # One for each address of a name.
        numbers = dict.fromkeys(int(number) for number in _NUMBER.findall(text))
        return "; ".join(map(_named, numbers)) or "no address of it answers"
    if error.errno and error.errno > 0 and (not error.strerror or _CALL.fullmatch(error.strerror)):
        return _named(error.errno)
    if error.strerror:
        return _small(error.strerror.partition(_OF_PYTHON)[0])
    return _small(_NUMBER.sub("", text)) or "no answer"


def _named(number: int) -> str:
    return _small(os.strerror(number)) if number > 0 else "the name is not known"


def _small(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
