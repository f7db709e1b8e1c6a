"""The minor versions of Kubernetes that all is built and tested for, one at a time: `KUBERNETES=1.36 make …`.

A minor has a go.mod of its own beside the module's first, given to Go by -modfile, and a build tag that picks
its files in plugin/internal/minor. `python -m makeway.dev.minors` prints the same as an overlay, for
staticcheck: it asks `go` outside of modules too, where -modfile is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from makeway.dev.paths import CHECKOUT

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


_MODULES: Final = (CHECKOUT / "plugin", CHECKOUT / "tests" / "upstream")


def overlay(minor: Minor, modules: Sequence[Path] = _MODULES) -> dict[str, dict[str, str]]:
    """Return what `go`'s -overlay reads: in each module the minor's go.mod and go.sum, where it has them."""
    if not minor.modfile:
        return {"Replace": {}}
    own = minor.modfile.removesuffix(".mod")
    return {
        "Replace": {
            str(module / f"go{kind}"): str(module / f"{own}{kind}")
            for module in modules
            for kind in (".mod", ".sum")
            if (module / f"{own}{kind}").exists()
        }
    }


if __name__ == "__main__":
    print(json.dumps(overlay(chosen())))
