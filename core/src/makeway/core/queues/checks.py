"""Which trees of queues make no sense: what no number by itself shows.

Sources: YuniKorn's design of quota preemption; yunikorn-core's configvalidator, which refuses the same
but for a child's maximum above its parent's: here that is no mistake, since the lower of the two holds,
and a parent's quota can be lowered without touching every child.
"""

from __future__ import annotations

from collections.abc import Mapping

from makeway.core.config.document import Document, Problem
from makeway.core.config.shapes import join_path
from makeway.core.k8s.resources import CPU
from makeway.core.queues.amounts import Amounts, text_of
from makeway.core.queues.document import QueuesFile
from makeway.core.queues.tree import DEFAULT, DEFAULT_PATH, NEVER, ROOT, QueueSpec


def check(root: QueueSpec, places: Mapping[str, str], document: Document[QueuesFile]) -> list[Problem]:
    """Return what is wrong with a tree; `places` says where in the file each queue stands. O(queues)."""
    checking = _Checking(places, document)
    checking.guaranteed(root, ROOT, {})
    for child in root.children:
        if child.name == DEFAULT:
            checking.default(child)
    return checking.problems


class _Checking:
    def __init__(self, places: Mapping[str, str], document: Document[QueuesFile]) -> None:
        self._places = places
        self._document = document
        self.problems: list[Problem] = []

    def guaranteed(self, queue: QueueSpec, path: str, above: Mapping[str, tuple[str, int]]) -> Amounts:
        """Check the guarantees at and below a queue; return what it needs to be guaranteed.

        `above`: the lowest maximum among the ancestors, by resource, and whose it is.
        """
        least = {name: (path, most) for name, most in queue.maximum.items()}
        least.update(
            {name: one for name, one in above.items() if name not in least or one[1] <= least[name][1]}
        )
        below: dict[str, int] = {}
        for child in queue.children:
            for name, amount in self.guaranteed(child, f"{path}.{child.name}", least).items():
                below[name] = below.get(name, 0) + amount
        own = {name: amount for name, amount in queue.guaranteed.items() if amount > 0}
        for name, amount in below.items():
            if name in own and amount > own[name]:
                message = f"is less than the {text_of(name, amount)} guaranteed to the queues below {path}"
                self._refuse(path, "guaranteed", name, message, "raise it, or lower theirs")
            own.setdefault(name, amount)
        self._against_maximum(queue, path, own, least)
        return own

    def default(self, default: QueueSpec) -> None:
        """Check that every pod can fall back on root.default."""
        where = self._places[DEFAULT_PATH]
        everybody = f"{DEFAULT_PATH} takes the pods that name no other queue"
        if default.children:
            remedy = "move them to another queue"
            self.problems.append(
                self._document.problem(f"{where}.queues", f"are below {DEFAULT_PATH}; {everybody}", remedy)
            )
        if default.namespaces:
            remedy = 'leave it out, or write ["*"]'
            self.problems.append(
                self._document.problem(f"{where}.namespaces", f"is too few: {everybody}", remedy)
            )

    def _against_maximum(
        self, queue: QueueSpec, path: str, own: Amounts, least: Mapping[str, tuple[str, int]]
    ) -> None:
        for name in own.keys() & least.keys():
            owner, most = least[name]
            needs = text_of(name, own[name])
            strict = queue.delay != NEVER and owner == path and name in queue.guaranteed
            if own[name] < most or (own[name] == most and not strict):
                continue
            if owner != path:
                if name in queue.guaranteed:
                    message = f"is more than {owner} may use, {text_of(name, most)}"
                    self._refuse(path, "guaranteed", name, message, f"lower it, or raise the max of {owner}")
            elif strict:
                message = (
                    f"is not above the guaranteed {needs} of {path}, "
                    "so that a lowered quota could not be enforced"
                )
                remedy = "raise it, lower what is guaranteed, or set quota.preemption.delay to 0"
                self._refuse(path, "max", name, message, remedy)
            else:
                message = f"is less than the {needs} guaranteed in {path}"
                self._refuse(path, "max", name, message, "raise it, or lower what is guaranteed")

    def _refuse(self, queue: str, part: str, resource: str, message: str, remedy: str) -> None:
        """Refuse a queue's amount, under the name by which the file has it."""
        where = f"{self._places[queue]}.resources.{part}"
        names = (resource, "vcore") if resource == CPU else (resource,)
        paths = [join_path(where, name) for name in names]
        path = next((one for one in paths if one in self._document.places), paths[0])
        self.problems.append(self._document.problem(path, message, remedy))
