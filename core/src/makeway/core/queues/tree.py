"""The tree of queues as it is in force: frozen, numbered, parents before children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Literal, NamedTuple, TypeAlias

from makeway.core.k8s.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from makeway.core.queues.amounts import Amounts

PreemptionPolicy: TypeAlias = Literal["default", "fence", "disabled"]
"""What a queue's `preemption.policy` says, as in YuniKorn; `disabled` is inherited, `fence` is not."""

ROOT: Final = "root"
DEFAULT: Final = "default"
DEFAULT_PATH: Final = f"{ROOT}.{DEFAULT}"
"""Where pods go that name no queue, or one that they may not use. It is always there."""

UNPLACED: Final = "@unplaced"
UNPLACED_PATH: Final = f"{ROOT}.{UNPLACED}"
"""Where pods count that no queue takes, and so are held: no label can name it, and its max is 0 pods."""

USUAL: Final = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE, PODS})
"""Resources of which every queue's usage is counted, whether it is limited or not."""

NEVER: Final = timedelta(0)
"""The delay that means: a lowered quota evicts no pod."""

EVICT_WHAT_IS_POSSIBLE: Final = 100
"""`quota.preemption.miss` where it is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """One queue as its configuration has it, with the queues below it; `name` is one part of the path.

    `guaranteed`, `maximum`: only what is named; a guarantee of 0 is none. `delay`: from a lowered maximum
    to evictions, NEVER for none. `miss_percent`: how much of the need may be left over. `namespaces`: whose
    pods may use it; None is inherited. `preemption_policy`: as Queue's `fenced` and `lends`.
    """

    name: str
    guaranteed: Amounts = field(default_factory=dict)
    maximum: Amounts = field(default_factory=dict)
    delay: timedelta = NEVER
    miss_percent: int = EVICT_WHAT_IS_POSSIBLE
    namespaces: tuple[str, ...] | None = None
    preemption_policy: PreemptionPolicy | None = None
    children: tuple[QueueSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue in its tree.

    `number`: its place in the tree's order. `line`: the numbers of the queue and its ancestors, itself first.
    `below`: the number after the last of its subtree, so that the subtree is `range(number, below)`.
    `namespaces`: whose pods may use it, empty for any. `fenced`: it and those below it take nothing back from
    outside. `lends`: others may take back what its pods hold.
    """

    path: str
    number: int
    line: tuple[int, ...]
    children: tuple[int, ...]
    below: int
    guaranteed: Amounts
    maximum: Amounts
    delay: timedelta
    miss_percent: int
    namespaces: frozenset[str]
    fenced: bool = False
    lends: bool = True

    @property
    def is_leaf(self) -> bool:
        """Pods run in leaves only."""
        return not self.children

    @property
    def depth(self) -> int:
        """0 for root."""
        return len(self.line) - 1


@dataclass(frozen=True, slots=True)
class QueueTree:
    """All queues, each followed by its subtree. `quota_preemption`: whether it is on at all.

    `named`: the namespaces that the tree knows, by a queue's list or by a queue below root of that name.
    `reclaim`: whether queues below their guarantees take back what others use of them. `counted`: the
    usual resources, and those of which a queue has a guarantee or a maximum.
    """

    queues: tuple[Queue, ...]
    numbers: Mapping[str, int]
    quota_preemption: bool
    named: frozenset[str] = frozenset()
    reclaim: bool = False
    counted: frozenset[str] = USUAL

    @classmethod
    def of(
        cls, root: QueueSpec, *, quota_preemption: bool = True, hold: bool = False, reclaim: bool = False
    ) -> QueueTree:
        """Number a tree. `root.default` is added where it is missing: for every namespace, without limits.

        `hold`: pods that no queue takes are held, by a queue for them that has no room. O(queues · depth).
        Raises ValueError where the root is called otherwise, two children of one queue have one name, or
        `root.default` has children.
        """
        if root.name != ROOT:
            raise ValueError(f"the topmost queue is {ROOT}, not {root.name}")
        queues: list[Queue | None] = []
        _number(_with_added(root, hold=hold), "", (), _INHERITED, queues)
        made = tuple(queue for queue in queues if queue is not None)
        named = {queue.path.removeprefix(f"{ROOT}.") for queue in made if queue.depth == 1}
        named -= {DEFAULT, UNPLACED}
        named.update(*(queue.namespaces for queue in made))
        numbers = {queue.path: queue.number for queue in made}
        counted = USUAL.union(*({*queue.guaranteed, *queue.maximum} for queue in made))
        tree = cls(made, numbers, quota_preemption, frozenset(named), reclaim, counted)
        if len(tree.numbers) != len(made):
            raise ValueError("two queues have one path")
        if not tree.at(DEFAULT_PATH).is_leaf:
            raise ValueError(f"{DEFAULT_PATH} has queues below it")
        return tree

    def __len__(self) -> int:
        """How many queues there are."""
        return len(self.queues)

    def __iter__(self) -> Iterator[Queue]:
        """In the tree's order."""
        return iter(self.queues)

    def at(self, path: str) -> Queue:
        """Return the queue of a path; KeyError where there is none."""
        return self.queues[self.numbers[path]]

    def find(self, path: str) -> Queue | None:
        """Return the queue of a path, or None."""
        number = self.numbers.get(path)
        return None if number is None else self.queues[number]

    def line(self, number: int) -> list[Queue]:
        """Return a queue and its ancestors, itself first."""
        return [self.queues[one] for one in self.queues[number].line]

    def leaves(self, queue: Queue) -> list[Queue]:
        """Return the leaves at or below a queue."""
        return [one for one in self.queues[queue.number : queue.below] if one.is_leaf]


def _with_added(root: QueueSpec, *, hold: bool) -> QueueSpec:
    """Return the tree with the queues that are always there, and the one for pods that are held."""
    added = []
    if not any(child.name == DEFAULT for child in root.children):
        added.append(QueueSpec(name=DEFAULT, namespaces=()))
    if hold:
        added.append(QueueSpec(name=UNPLACED, maximum={"pods": 0}, namespaces=()))
    if not added:
        return root
    return replace(root, children=(*root.children, *added))


class _Inherited(NamedTuple):
    """What a queue has from the one above, where it says nothing itself."""

    namespaces: frozenset[str]
    lends: bool


_INHERITED: Final = _Inherited(frozenset(), True)


def _number(
    spec: QueueSpec,
    above: str,
    line: tuple[int, ...],
    inherited: _Inherited,
    queues: list[Queue | None],
) -> int:
    """Enter a queue and its subtree; return its number."""
    number = len(queues)
    queues.append(None)
    path = f"{above}.{spec.name}" if above else spec.name
    own = (number, *line)
    policy = spec.preemption_policy
    passed_on = _Inherited(
        inherited.namespaces if spec.namespaces is None else frozenset(spec.namespaces),
        inherited.lends if policy is None else policy != "disabled",
    )
    children = tuple(_number(child, path, own, passed_on, queues) for child in spec.children)
    queues[number] = Queue(
        path=path,
        number=number,
        line=own,
        children=children,
        below=len(queues),
        guaranteed={name: amount for name, amount in spec.guaranteed.items() if amount > 0},
        maximum=dict(spec.maximum),
        delay=spec.delay,
        miss_percent=spec.miss_percent,
        namespaces=passed_on.namespaces,
        fenced=policy == "fence",
        lends=passed_on.lends,
    )
    return number


def paths_in_order(queues: Sequence[Queue]) -> list[str]:
    """Return the paths of some queues: deepest first, then by path.

    The order in which quotas are enforced.
    """
    return [queue.path for queue in sorted(queues, key=lambda queue: (-queue.depth, queue.path))]
