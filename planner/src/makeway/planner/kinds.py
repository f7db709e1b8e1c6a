"""What of a pod other pods' constraints look at, shared by all pods that are alike.

A cluster has far fewer kinds than pods, so that a selector is matched once for a kind; the columns hold
each pod's kind, and a constraint becomes a table from kind to number.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec
import numpy as np

from makeway.core.affinity import Term, anti_affinity_terms
from makeway.core.objects import Pod
from makeway.core.ports import HostPort, host_ports
from makeway.core.selector import SelectorError
from makeway.planner.columns import Ints

_REMEMBERED = 16384
"""Kinds of pods that have nothing but labels, of which the value is shared."""


class Kind(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
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
    """Take the kind from a pod. A selector that Kubernetes would not accept counts as no term.

    Pods that have nothing but labels share the value; what tells their kinds apart is the same for all pods
    of a workload.
    """
    ports, claims = host_ports(pod), claims_of(pod)
    try:
        terms = anti_affinity_terms(pod) if pod.spec.affinity is not None else ()
    except SelectorError:
        terms = ()
    labels = tuple((pod.metadata.labels or {}).items())
    plain = (pod.metadata.namespace, labels, pod.metadata.deletion_timestamp is not None)
    if ports or claims or terms:
        return _kind(*plain, ports=ports, anti_affinity=terms, claims=claims)
    return _plain_kind(*plain)


def _kind(
    namespace: str,
    labels: tuple[tuple[str, str], ...],
    terminating: bool,
    *,
    ports: tuple[HostPort, ...] = (),
    anti_affinity: tuple[Term, ...] = (),
    claims: tuple[str, ...] = (),
) -> Kind:
    return Kind(
        namespace=namespace,
        labels=tuple(sorted(labels)),
        ports=ports,
        anti_affinity=anti_affinity,
        claims=claims,
        terminating=terminating,
    )


_plain_kind = lru_cache(maxsize=_REMEMBERED)(_kind)


def claims_of(pod: Pod) -> tuple[str, ...]:
    """Give the names of the claims that a pod mounts, each once, in order."""
    volumes = pod.spec.volumes or ()
    sources = [volume.persistent_volume_claim for volume in volumes if volume.persistent_volume_claim]
    return tuple(sorted({source.claim_name for source in sources})) if sources else ()


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

    def number(self, kind: Kind) -> int:
        """Give a kind's number. Raises KeyError where no pod holds it."""
        return self._numbers[kind]

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
