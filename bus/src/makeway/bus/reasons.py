"""Why something could not be reached or read, in words for people. Pure."""

from __future__ import annotations

import os
import re
from typing import Final

_NUMBER: Final = re.compile(r"\[Errno (-?\d+)\] ?")
_CALL: Final = re.compile(r"Connect call failed \(.*\)")
_SEVERAL: Final = "Multiple exceptions: "


def reason_of(error: BaseException) -> str:
    """Return what went wrong, beginning with a small letter where the words are the system's.

    An error of ours, or of a server's, is passed on as it says itself.
    """
    # aiohttp's errors of a connection carry the system's.
    inner = getattr(error, "os_error", None)
    if isinstance(inner, OSError) and inner is not error:
        return reason_of(inner)
    if found := getattr(error, "verify_message", ""):
        return f"its certificate is not trusted: {found}"
    match error:
        case UnicodeDecodeError():
            return f"it is not text in UTF-8, from byte {error.start} on"
        case UnicodeEncodeError():
            return f"{error.object[error.start : error.end]!r} cannot be written in {error.encoding.upper()}"
        case TimeoutError() if not error.errno:
            return "timed out"
        case OSError():
            return _of_the_system(error)
    return str(error) or f"no reason was given ({type(error).__name__})"


def _of_the_system(error: OSError) -> str:
    text = str(error)
    if text.startswith(_SEVERAL):
        # One for each address of a name.
        numbers = dict.fromkeys(int(number) for number in _NUMBER.findall(text))
        return "; ".join(map(_named, numbers)) or "no address of it answers"
    if error.errno and error.errno > 0 and (not error.strerror or _CALL.fullmatch(error.strerror)):
        return _named(error.errno)
    if error.strerror:
        return _small(error.strerror)
    return _small(_NUMBER.sub("", text)) or "no answer"


def _named(number: int) -> str:
    return _small(os.strerror(number)) if number > 0 else "the name is not known"


def _small(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
