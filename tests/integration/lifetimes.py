"""Tests that share a control plane run one after another, and it is stopped after the last of them.

A dozen idle control planes take one of two cores, so that what runs last would be slow for no fault of its
own. Where two processes run the tests (`pytest -n 2 --dist loadgroup`), each has its own of what both need.
"""

from collections.abc import Callable, Iterable, Sequence

import pytest
from _pytest.nodeid import NodeId

from integration.clusters import KINDS

SHARED = ("installed", "race_cluster", *KINDS)
"""The session's fixtures that start processes. Tests run in this order, by the first that they need."""
WHOLE = {name for name, kind in KINDS.items() if kind.whole} | {"race_cluster"}
"""Those that one process starts, which runs all tests that need them."""
EXTERNAL_FORM = "external"
BY_FORM = {
    "cluster": ("shared_cluster", "external_cluster"),
    "crash_cluster": ("plugin_crash_cluster", "external_cluster"),
    "race_cluster": ("race_cluster", "external_cluster"),
    "secured_cluster": ("tls_cluster", "tls_external_cluster"),
    "traced_cluster": ("tls_cluster", "traced_external_cluster"),
}
"""Fixtures that give one cluster with the plugin, and the other in the external form."""

_FORMS = ("form", "race_form")


def needed(item: pytest.Item) -> set[str]:
    """Return the shared clusters that a test uses, directly or through other fixtures."""
    names: Iterable[str] = getattr(item, "fixturenames", ())
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    external = any(params.get(form) == EXTERNAL_FORM for form in _FORMS)
    found = {name for name in names if name in SHARED and name not in BY_FORM}
    for name in BY_FORM.keys() & set(names):
        if not _replaced(item, name):
            found.add(BY_FORM[name][external])
    return found


def _replaced(item: pytest.Item, name: str) -> bool:
    """Report whether the test's own module has a fixture of that name, in place of the one for all."""
    definitions = getattr(item, "_fixtureinfo", None)
    named = definitions.name2fixturedefs.get(name, ()) if definitions else ()
    return any(definition.baseid == item.nodeid.partition("::")[0] for definition in named)


def group(item: pytest.Item) -> str:
    """Return the name of what one process runs as a whole: the tests of a cluster that is started once, those
    of a module that has a fixture of its own, or a test with all its parameters; on one cluster each, so that
    each process runs its tests in their order, and none comes back to a cluster that was stopped.
    """
    if once := needed(item) & WHOLE:
        return min(once)
    definitions = getattr(item, "_fixtureinfo", None)
    found = definitions.name2fixturedefs.values() if definitions else ()
    whole = any(definition.scope == "module" for of_name in found for definition in of_name)
    name = item.originalname if isinstance(item, pytest.Function) and not whole else ""
    return ".".join((item.path.stem, name, *sorted(needed(item))))


def order(items: list[pytest.Item]) -> None:
    """Sort tests in place by the clusters that they need; those that need none run first."""

    def place(item: pytest.Item) -> list[int]:
        return sorted(SHARED.index(name) for name in needed(item))

    items.sort(key=place)


def name_groups(items: Iterable[pytest.Item]) -> None:
    """Append its group to each test's node ID, in a process of xdist's.

    xdist 3.8 does that itself, in a field that pytest 9.2 reads no more, so that no group would hold.
    """
    for item in items:
        marks = [mark.args[0] for mark in item.iter_markers("xdist_group")]
        if marks and not item.nodeid.endswith(f"@{marks[0]}"):
            item._id = NodeId.parse(f"{item.nodeid}@{marks[0]}")
            assert item.nodeid.endswith(f"@{marks[0]}"), "this pytest has node IDs of another form"


class Lifetimes:
    """Stops what the tests to come do not need."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._at = {item.nodeid: index for index, item in enumerate(items)}
        self._last: dict[str, int] = {}
        for index, item in enumerate(items):
            self._last.update(dict.fromkeys(needed(item), index))
        self._stops: dict[str, Callable[[], None]] = {}

    def add(self, name: str, stop: Callable[[], None]) -> None:
        """Keep how to stop a fixture of `SHARED` that was started."""
        self._stops[name] = stop

    def stop(self, name: str) -> None:
        """Stop it; does nothing where it was stopped already."""
        if stop := self._stops.pop(name, None):
            stop()

    def before(self, item: pytest.Item) -> None:
        """Stop what no test needs from this one on, the last started first."""
        for name in [name for name in reversed(self._stops) if self._last[name] < self._at[item.nodeid]]:
            self.stop(name)
