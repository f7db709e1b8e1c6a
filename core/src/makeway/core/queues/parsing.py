"""From queues.yaml to the tree that is in force: problems have a path, a value and a remedy.

Which trees make no sense, where no number shows that by itself: as YuniKorn's design of quota preemption has
it; yunikorn-core's configvalidator refuses the same but for a child's maximum above its parent's: here that
is no mistake, since the lower of the two holds, and a parent's quota can be lowered without touching every
child.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, get_args

from makeway.core.config.document import Document, Problem, join_path, read
from makeway.core.config.duration import EXPECTED, parse_duration
from makeway.core.k8s.resources import CPU
from makeway.core.queues.amounts import AmountError, Amounts, parse_amount, resource_name, text_of
from makeway.core.queues.document import DELAY, MISS, POLICY, QueueEntry, QueuesFile, ignored
from makeway.core.queues.tree import (
    DEFAULT,
    DEFAULT_PATH,
    EVICT_WHAT_IS_POSSIBLE,
    NEVER,
    ROOT,
    UNPLACED,
    UNPLACED_PATH,
    PreemptionPolicy,
    QueueSpec,
    QueueTree,
)
from makeway.core.text import counted

KEY = "queues.yaml"
"""The key of the ConfigMap that holds it."""

LEAST_DELAY: Final = timedelta(seconds=60)
"""Below this a delay is warned of (YuniKorn's design recommends 60 s to 5 h)."""

MOST_NAMED: Final = 5
"""Queues that a warning names."""


@dataclass(frozen=True, slots=True)
class Queues:
    """A configuration of queues that is in force, and what in it has no meaning here."""

    tree: QueueTree
    warnings: tuple[str, ...] = ()


def parse_queues(text: str, source: str) -> Queues:
    """Read queues.yaml. `source` names the file or object in errors.

    Raises:
        ConfigError: it is refused, with all that is wrong, each with its remedy.
    """
    document = read(text, source, QueuesFile)
    reading = _Reading(document)
    root = reading.root()
    document.check([*reading.problems, *check(root, reading.paths, document)])
    partition = document.value.partitions[0]
    limited = any(spec.maximum for spec in _all(root))
    hold = limited if partition.unplaced is None else partition.unplaced == "hold"
    preemption = partition.preemption
    tree = QueueTree.of(
        root,
        quota_preemption=preemption.quotapreemptionenabled,
        hold=hold,
        reclaim=bool(preemption.enabled),
    )
    return Queues(
        tree,
        (
            *reading.warnings,
            *_delays(tree),
            *_reclaim(tree, preemption.enabled),
            *_open(tree, limited=limited, hold=hold),
        ),
    )


def _all(spec: QueueSpec) -> Iterator[QueueSpec]:
    """Return a queue and all below it."""
    yield spec
    for child in spec.children:
        yield from _all(child)


def _open(tree: QueueTree, *, limited: bool, hold: bool) -> Iterator[str]:
    """Return which queues do not bind those whom they are for."""
    if not limited:
        return
    leaves = [queue for queue in tree if queue.is_leaf and queue.path not in (DEFAULT_PATH, UNPLACED_PATH)]
    if paths := [queue.path for queue in leaves if not queue.namespaces]:
        yield (
            f"{_some(paths)}: open, so that any namespace"
            f"{' without queues of its own' if hold else ''} may name it and fill it; list its namespaces"
        )
    default = tree.at(DEFAULT_PATH)
    if not any(queue.maximum for queue in tree.line(default.number)):
        yield (
            f"{DEFAULT_PATH} has no max: pods in it are not limited"
            f"{'' if hold else ', and any pod gets there by a label that names no queue'}; give it one"
        )


def _reclaim(tree: QueueTree, enabled: bool | None) -> Iterator[str]:
    """Return where guarantees, or what limits reclaim, do less than in YuniKorn."""
    guaranteed = [queue.path for queue in tree if queue.guaranteed]
    if guaranteed and enabled is None:
        yield (
            f"guaranteed of {_some(guaranteed)} keeps the queue's own pods and, unlike in YuniKorn, takes "
            "nothing back from queues above theirs; set partitions[0].preemption.enabled to true for that, "
            "or to false"
        )
    if enabled and not guaranteed:
        yield "partitions[0].preemption.enabled has no effect: no queue has a guarantee to take back"
    limited = [queue.path for queue in tree if queue.fenced or not queue.lends]
    if limited and not tree.reclaim:
        yield (
            f"{POLICY} of {_some(limited)} has no effect: it limits what queues take back; set "
            "partitions[0].preemption.enabled to true, or leave it out"
        )


def _delays(tree: QueueTree) -> Iterator[str]:
    """Return which delays do not do what they seem to."""
    paths = [queue.path for queue in tree if queue.delay != NEVER]
    if paths and not tree.quota_preemption:
        yield (
            f"{DELAY} of {_some(paths)} has no effect: a lowered max evicts no pod; set "
            "partitions[0].preemption.quotapreemptionenabled to true, or leave the delay out"
        )
    elif short := [path for path in paths if tree.at(path).delay < LEAST_DELAY]:
        yield (
            f"{DELAY} of {_some(short)} is below {LEAST_DELAY.seconds}s, which leaves little time to take a "
            "mistaken max back; 60s to 5h is recommended, and a plain number is seconds"
        )


def _some(paths: list[str]) -> str:
    more = len(paths) - MOST_NAMED
    return ", ".join(paths[:MOST_NAMED]) + (f" and {counted(more, 'other queue')}" if more > 0 else "")


class _Reading:
    """One walk over the file. `paths`: where each queue stands in the file, by its own path."""

    def __init__(self, document: Document[QueuesFile]) -> None:
        self._document = document
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.paths: dict[str, str] = {}

    def root(self) -> QueueSpec:
        """Read the one partition."""
        partitions = self._document.value.partitions
        if len(partitions) != 1:
            self._refuse("partitions", f"has {len(partitions)} partitions", "write exactly one")
            return QueueSpec(name=ROOT)
        partition, path = partitions[0], "partitions[0]"
        for part, where in ((partition, path), (partition.preemption, f"{path}.preemption")):
            self.warnings += [_meaningless(join_path(where, name)) for name in ignored(part)]
        entries = partition.queues
        if len(entries) == 1 and entries[0].name.lower() == ROOT:
            return self._queue(entries[0], f"{path}.queues[0]", "")
        # As in YuniKorn: without a root, one is put on top.
        self.paths[ROOT] = path
        return QueueSpec(name=ROOT, children=self._queues(entries, f"{path}.queues", ROOT))

    def _queues(self, entries: tuple[QueueEntry, ...], where: str, above: str) -> tuple[QueueSpec, ...]:
        seen: set[str] = set()
        read_ = []
        for number, entry in enumerate(entries):
            path = f"{where}[{number}]"
            if entry.name.lower() in seen:
                message = f"is the name of another queue below {above}"
                self._refuse(f"{path}.name", message, "give each its own name; capitals make no difference")
            elif entry.name.lower() == ROOT and above == ROOT:
                self._refuse(f"{path}.name", "is beside other queues", "put them below it")
            elif entry.name == UNPLACED and above == ROOT:
                self._refuse(f"{path}.name", "is where pods count that no queue takes", "call it otherwise")
            else:
                read_.append(self._queue(entry, path, above))
            seen.add(entry.name.lower())
        return tuple(read_)

    def _queue(self, entry: QueueEntry, where: str, above: str) -> QueueSpec:
        path = f"{above}.{entry.name}" if above else ROOT
        self.paths[path] = where
        self.warnings += [_meaningless(f"{where}.{name}", path) for name in ignored(entry)]
        if entry.parent and not entry.queues:
            self.warnings.append(f"{where}.parent: {path} has no queues below it, so pods may run in it")
        resources, at = entry.resources, f"{where}.resources"
        return QueueSpec(
            name=entry.name if above else ROOT,
            guaranteed=self._amounts(resources.guaranteed, f"{at}.guaranteed"),
            maximum=self._amounts(resources.max, f"{at}.max"),
            delay=self._delay(entry, where, path),
            miss_percent=self._miss(entry, where),
            namespaces=self._namespaces(entry, where),
            preemption_policy=self._preemption_policy(entry, where),
            children=self._queues(entry.queues, f"{where}.queues", path),
        )

    def _amounts(self, written: Mapping[str, str], where: str) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for name, text in written.items():
            path = join_path(where, name)
            try:
                resource = resource_name(name)
                amount = parse_amount(resource, text)
            except AmountError as error:
                self._refuse(path, str(error), error.remedy)
                continue
            if resource in amounts:
                self._refuse(path, "is there twice: vcore and cpu are the same", "keep one of them")
            amounts[resource] = amount
        return amounts

    def _delay(self, entry: QueueEntry, where: str, queue: str) -> timedelta:
        """Read the delay, which may stand in either place; without one, `miss` has no effect."""
        delay = entry.resources.quota_delay
        text = entry.properties.get(DELAY)
        says_miss = MISS in entry.properties or entry.resources.quota_miss is not None
        if text is None and delay is None and says_miss:
            self.warnings.append(f"{MISS} of {queue} has no effect without {DELAY}, which no queue inherits")
        if text is None:
            return NEVER if delay is None else delay
        path = join_path(f"{where}.properties", DELAY)
        try:
            other = parse_duration(text)
        except ValueError as error:
            self._refuse(path, str(error), f"write {EXPECTED}")
            return NEVER
        if delay is not None and other != delay:
            self._refuse(path, "is not the value under resources", "keep one of the two")
        return other

    def _miss(self, entry: QueueEntry, where: str) -> int:
        miss = entry.resources.quota_miss
        text = entry.properties.get(MISS)
        if text is None:
            return EVICT_WHAT_IS_POSSIBLE if miss is None else miss
        path = join_path(f"{where}.properties", MISS)
        if not (text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= 100):
            self._refuse(path, "is no percentage", "write a whole number from 0 to 100")
            return EVICT_WHAT_IS_POSSIBLE
        if miss is not None and int(text) != miss:
            self._refuse(path, "is not the value under resources", "keep one of the two")
        return int(text)

    def _preemption_policy(self, entry: QueueEntry, where: str) -> PreemptionPolicy | None:
        text = entry.properties.get(POLICY)
        if text is None:
            return None
        known: dict[str, PreemptionPolicy] = {one: one for one in get_args(PreemptionPolicy)}
        if text.lower() not in known:
            path = join_path(f"{where}.properties", POLICY)
            self._refuse(path, "is no policy", "write default, fence or disabled")
        return known.get(text.lower())

    def _namespaces(self, entry: QueueEntry, where: str) -> tuple[str, ...] | None:
        if entry.namespaces is None:
            return None
        if not entry.namespaces:
            self._refuse(
                f"{where}.namespaces", "names no namespace", 'name namespaces, write ["*"] or leave it out'
            )
        return () if "*" in entry.namespaces else entry.namespaces

    def _refuse(self, path: str, message: str, remedy: str) -> None:
        self.problems.append(self._document.problem(path, message, remedy))


def _meaningless(where: str, queue: str = "") -> str:
    of = f" of {queue}" if queue else ""
    return f"{where}{of} has no meaning for makeway and is ignored"


def check(root: QueueSpec, places: Mapping[str, str], document: Document[QueuesFile]) -> list[Problem]:
    """Return what is wrong with a tree; `places` says where in the file each queue is. O(queues)."""
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
        others = f"{DEFAULT_PATH} takes the pods that name no other queue"
        if default.children:
            remedy = "move them to another queue"
            self.problems.append(
                self._document.problem(f"{where}.queues", f"are below {DEFAULT_PATH}; {others}", remedy)
            )
        if default.namespaces:
            remedy = 'leave it out, or write ["*"]'
            self.problems.append(
                self._document.problem(f"{where}.namespaces", f"is too few: {others}", remedy)
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
