"""What `pip install .` leaves out, and how a command says that it needs it.

The command line comes with what asks the API server and NATS. The services, and whatever plans, need
`.[services]` besides: the arrays of the planner alone are larger than all the rest. The page needs
`.[ui]`, which has these too; services that trace need `.[tracing]`. A checkout is named, not the package
index, where until the first release anyone may register the name.
"""

from __future__ import annotations

from typing import Final

_OF_EXTRAS: Final = {"numpy": "services", "opentelemetry": "tracing", "starlette": "ui", "uvicorn": "ui"}
"""Top-level modules that an extra brings, and its name in pyproject.toml."""


def needed(error: ModuleNotFoundError, what: str) -> str:
    """Say which extra brings what was not found, and how to install it.

    `what`: the subject of the sentence. Raises the error again where no extra brings the module: something
    else is wrong then.
    """
    module = (error.name or "").partition(".")[0]
    if module not in _OF_EXTRAS:
        raise error
    extra = _OF_EXTRAS[module]
    return f"{what} needs {module}, which is not installed: pip install '.[{extra}]' in a checkout"
