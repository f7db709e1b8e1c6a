"""The minor versions of Kubernetes that all is built and tested for, one at a time: `KUBERNETES=1.36 make …`.

A minor has a go.mod of its own beside the module's first, given to Go by -modfile, and a build tag that picks
its files in plugin/internal/minor.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

VARIABLE: Final = "KUBERNETES"


@dataclass(frozen=True)
class Minor:
    """One of them. `modfile` and `tag`: empty for what the modules' first go.mod is."""

    name: str
    version: str
    modfile: str = ""
    tag: str = ""


MINORS: Final = (
    Minor("1.37", "v1.37.2"),
    Minor("1.36", "v1.36.3", "go-1.36.mod", "kube136"),
    Minor("1.35", "v1.35.4", "go-1.35.mod", "kube135"),
)

DEFAULT: Final = MINORS[0]


def chosen(environment: Mapping[str, str] = os.environ) -> Minor:
    """Return the minor that the environment names, else the default.

    Raises:
        ValueError: it is none of them.
    """
    name = environment.get(VARIABLE, "") or DEFAULT.name
    for one in MINORS:
        if one.name == name:
            return one
    raise ValueError(f"{VARIABLE}={name}: one of {', '.join(one.name for one in MINORS)}")
