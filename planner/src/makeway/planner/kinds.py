"""What of a pod other pods' constraints look at, shared by all pods that are alike.

A cluster has far fewer kinds than pods, so that a selector is matched once for a kind; the columns hold
each pod's kind, and a constraint becomes a table from kind to number.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from makeway.core.affinity import Term, anti_affinity_terms
from makeway.core.objects import Pod
from makeway.core.ports import HostPort, host_ports
from makeway.core.selector import SelectorError
from makeway.planner.columns import Ints

NO_KIND = 0
"""The number in an empty slot."""


class Kind(msgspec.Struct, frozen=True, gc=False):
    """The side of a pod that others' constraints see.

    `labels`: pairs, in order. `anti_affinity`: its required terms. `claims`: names of its
    PersistentVolumeClaims. `terminating`: it has a deletionTimestamp, and spread no longer counts it.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[HostPort, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    claims: tuple[str, ...] = ()
    terminating: bool = False


def kind_of(pod: Pod) -> Kind:
    """Take the kind from a pod. A selector that Kubernetes would not accept counts as no term."""
    try:
        terms = anti_affinity_terms(pod)
    except SelectorError:
        terms = ()
    return Kind(
        namespace=pod.metadata.namespace,
        labels=tuple(sorted((pod.metadata.labels or {}).items())),
        ports=host_ports(pod),
        anti_affinity=terms,
        claims=claims_of(pod),
        terminating=pod.metadata.deletion_timestamp is not None,
    )


def claims_of(pod: Pod) -> tuple[str, ...]:
    """Give the names of the claims that a pod mounts, each once, in order."""
    volumes = pod.spec.volumes or ()
    sources = (volume.persistent_volume_claim for volume in volumes)
    return tuple(sorted({source.claim_name for source in sources if source is not None}))


class KindTable:
    """Kinds by number, with how many pods hold each. Mutated only by the snapshot that owns it.

    `assigned`: int64[numbers], the serial at which a number was last given to a kind, so that whoever
    keeps a table by kind knows which entries are new since it last looked. `forbidden`: counts how often
    the kinds with required anti-affinity have changed.
    """

    def __init__(self) -> None:
        self.serial = 0
        self.forbidden = 0
        self.assigned: Ints = np.zeros(64, np.int64)
        self._numbers: dict[Kind, int] = {}
        self._kinds: list[Kind | None] = [None]
        self._holders: list[int] = [0]
        self._free: list[int] = []
        self._forbidding: dict[int, Kind] = {}

    def __len__(self) -> int:
        """How many kinds there are."""
        return len(self._numbers)

    @property
    def size(self) -> int:
        """One more than the highest number in use so far."""
        return len(self._kinds)

    def acquire(self, kind: Kind) -> int:
        """Give a kind's number and count one more holder of it. O(1)."""
        number = self._numbers.get(kind)
        if number is None:
            number = self._new(kind)
        self._holders[number] += 1
        return number

    def release(self, kind: Kind) -> None:
        """Count one holder less; a kind without holders is forgotten and its number used again."""
        number = self._numbers[kind]
        self._holders[number] -= 1
        if self._holders[number] == 0:
            del self._numbers[kind]
            self._kinds[number] = None
            if self._forbidding.pop(number, None) is not None:
                self.forbidden += 1
            self._free.append(number)

    def since(self, serial: int) -> list[tuple[int, Kind | None]]:
        """Give the numbers assigned after a serial, with their kinds. O(numbers)."""
        fresh = np.flatnonzero(self.assigned[: self.size] > serial).tolist()
        return [(number, self._kinds[number]) for number in fresh]

    def forbidding(self) -> Iterable[Kind]:
        """Give the kinds that have required anti-affinity."""
        return self._forbidding.values()

    def _new(self, kind: Kind) -> int:
        if self._free:
            number = self._free.pop()
            self._kinds[number] = kind
        else:
            number = len(self._kinds)
            self._kinds.append(kind)
            self._holders.append(0)
            if number >= self.assigned.size:
                self.assigned = np.concatenate([self.assigned, np.zeros_like(self.assigned)])
        self.serial += 1
        self.assigned[number] = self.serial
        self._numbers[kind] = number
        if kind.anti_affinity:
            self._forbidding[number] = kind
            self.forbidden += 1
        return number
