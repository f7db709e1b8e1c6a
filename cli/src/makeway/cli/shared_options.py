"""Options of several commands, declared once; and durations and moments as people write them.

Options that commands share are the fields of the dataclass that holds their values.

A field whose type is a `typer` annotation is an option. Typer reads a command's options from its signature.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, TypeVar, get_origin, get_type_hints

import typer

from makeway.core.config.duration import EXPECTED, DurationError, parse_duration

T = TypeVar("T")

_AGO: Final = re.compile(r"(\d{1,9})([smhd])")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

SinceOption = Annotated[
    str,
    typer.Option("--since", metavar="AGO|TIME", help="Begin so far back: 90s, 10m, 2h, 1d, or RFC 3339."),
]


def parameters(settings: type, prefix: str = "") -> list[inspect.Parameter]:
    """Return the options among a dataclass's fields. `prefix`: of their names in the signature."""
    hints = get_type_hints(settings, include_extras=True)
    return [
        inspect.Parameter(
            prefix + one.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default,
            annotation=hints[one.name],
        )
        for one in dataclasses.fields(settings)
        if get_origin(hints[one.name]) is Annotated
    ]


def taken(settings: type[T], options: dict[str, Any], prefix: str = "", **more: Any) -> T:
    """Take a dataclass's options out of all that a command was called with. `more`: its other fields."""
    given = [one.name for one in parameters(settings, prefix) if one.name in options]
    return settings(**{name.removeprefix(prefix): options.pop(name) for name in given}, **more)


def seconds_given(timeout: str) -> float:
    """Read `--timeout`; what is no duration is wrong usage."""
    try:
        return parse_duration(timeout).total_seconds()
    except DurationError as error:
        raise typer.BadParameter(f"{timeout!r} {error}; write {EXPECTED}", param_hint="--timeout") from error


def since_given(text: str, now: datetime) -> datetime:
    """Read the option; what is neither form is wrong usage."""
    try:
        return parse_since(text, now)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from error


def parse_since(text: str, now: datetime) -> datetime:
    """Read it; a time without an offset is taken as UTC.

    Raises:
        ValueError: it is neither form, lies in the future, or before 1970.
    """
    if ago := _AGO.fullmatch(text.strip()):
        try:
            moment = now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError as error:
            raise ValueError(f"{text!r} is too long ago") from error
    else:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise ValueError(
                f"{text!r}: use 90s, 10m, 2h, 1d or a time such as 2026-01-31T12:00:00Z"
            ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if moment > now:
        raise ValueError(f"{text!r} lies in the future")
    if moment < _EPOCH:
        raise ValueError(f"{text!r} is too long ago")
    return moment


def with_options(
    start: Callable[..., None], run: Callable[..., Any], shared: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """Return `start` as a command of `run`'s name, text and options, and of the shared ones.

    The first parameter of `run` is no option: `start` makes it of the shared ones.
    """
    own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
    start.__name__, start.__doc__ = run.__name__, run.__doc__
    start.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined] # read by typer
    start.__annotations__ = {}
    return start
