"""The form of an installation: who brings plans to the cluster, and so which parts there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from makeway.cli.connect.nats import read_installation
from makeway.runtime.kube import Api, ApiError

PARTS: Final = {
    "none": ("planner",),
    "external": ("planner", "evictor", "nominator"),
    "plugin": ("planner", "evictor", "scheduler"),
}
"""The parts of each bridge that answer on NATS."""

SAID: Final = {
    "none": "preemptions are compared, and makeway evicts no pod",
    "external": "makeway nominator, beside a kube-scheduler without the plugin",
    "plugin": "makeway-scheduler",
}


@dataclass(frozen=True)
class Form:
    """What the installation says of itself.

    `bridges`: keys of PARTS, none twice, at least one. `shadow`: whether a shadow scheduler verifies plans.
    `accounts`: names of service accounts by component, where they are not makeway-COMPONENT. `denied`: why it
    could not be asked, and the form of older charts stands in for its answer.
    """

    bridges: tuple[str, ...] = ("plugin",)
    shadow: bool = False
    accounts: Mapping[str, str] = field(default_factory=dict)
    denied: str = ""

    @classmethod
    def parse(cls, text: str, verify: str = "", accounts: str = "") -> Form:
        """Read `bridge`, `verify`, `serviceAccounts`; no bridge, or an unknown one: the plugin's."""
        bridges = tuple(dict.fromkeys(one for one in text.replace(",", " ").split() if one in PARTS))
        named = dict(one.split("=", 1) for one in accounts.split(",") if "=" in one)
        return cls(bridges or cls.bridges, verify == "shadow", named)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that go by the mode, each once; a shadow does not."""
        return tuple(dict.fromkeys(part for bridge in self.bridges for part in PARTS[bridge]))

    @property
    def evicts(self) -> bool:
        """Whether anything can carry out an order."""
        return "evictor" in self.parts

    @property
    def plugin(self) -> bool:
        """Whether a scheduler has the plugin."""
        return "scheduler" in self.parts

    def describe(self) -> str:
        """Return it as a person reads it."""
        verified = "; a shadow scheduler verifies its plans" if self.shadow else ""
        return "; ".join(f"{bridge}: {SAID[bridge]}" for bridge in self.bridges) + verified


async def installed_form(api: Api, namespace: str) -> Form:
    """Ask the installation; where it does not say, or may not be asked, it is that of older charts.

    Raises:
        ApiError, ApiUnavailable: the API server did not answer.
    """
    try:
        found = await read_installation(api, namespace)
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return Form(denied=error.message)
    except ValueError:  # whoever connects to NATS says what is wrong with it
        return Form()
    return Form.parse(found.bridge, found.verify, found.service_accounts) if found else Form()
