"""Commands whose shared options are declared once: typer reads a command's options from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any


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
