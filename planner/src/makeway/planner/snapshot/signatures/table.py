"""Pod signatures: what other pods' constraints see of a pod, shared by all pods for which it is the same.

A cluster has far fewer signatures than pods, so a selector is matched once for a signature; the columns hold
each pod's signature, and a constraint becomes a table from signature to number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Set
from typing import TypeVar

import msgspec
import numpy as np

from makeway.core.k8s.affinity import Term, anti_affinity_terms
from makeway.core.k8s.objects import Pod
from makeway.core.k8s.ports import HostPort, host_ports
from makeway.core.k8s.queue_labels import QUEUE_LABELS, asked_for
from makeway.core.k8s.selector import Requirement, SelectorError
from makeway.planner.snapshot.bounds import MOST_TERMS, is_large_affinity
from makeway.planner.snapshot.columns import Flags, Ints, extended
from makeway.planner.snapshot.signatures.anti_affinity import AntiAffinityIndex
from makeway.planner.snapshot.signatures.interning import NONE, InternTable

_V = TypeVar("_V", bound=Hashable)

_encode = msgspec.json.Encoder().encode

_REMEMBERED_REDUCED = 4096
"""Signatures of which the reduced form is remembered: those of the workloads whose pods come and go."""

_LARGEST_REMEMBERED = 2048
"""Bytes of such a signature: a pod's author decides how large it is, and one kept here outlasts its pod."""


class PodSignature(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The side of a pod that others' constraints see.

    `labels`: pairs, in order. `anti_affinity`: its required terms. `claims`: names of its
    PersistentVolumeClaims. `terminating`: it has a deletionTimestamp, and spread no longer counts it.
    `left_out`: it has more terms or host ports than are looked at, and counts as having none. `queue`: the
    one that its label named when it was placed, where that names another now.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[HostPort, ...] = ()
    anti_affinity: tuple[Term, ...] = ()
    claims: tuple[str, ...] = ()
    terminating: bool = False
    left_out: bool = False
    queue: str | None = None


def signature_of(pod: Pod) -> PodSignature:
    """Return the signature of a pod. A selector that Kubernetes would not accept counts as no term."""
    ports, claims, left_out = host_ports(pod), claims_of(pod), False
    if len(ports) > MOST_TERMS:
        ports, left_out = (), True
    terms: tuple[Term, ...] = ()
    if pod.spec.affinity is not None:
        if is_large_affinity(pod.spec.affinity.pod_anti_affinity):
            left_out = True
        else:
            try:
                terms = anti_affinity_terms(pod)
            except SelectorError:
                terms = ()
    return PodSignature(
        namespace=pod.metadata.namespace,
        labels=tuple(sorted((pod.metadata.labels or {}).items())),
        ports=ports,
        anti_affinity=terms,
        claims=claims,
        terminating=pod.metadata.deletion_timestamp is not None,
        left_out=left_out,
    )


def claims_of(pod: Pod) -> tuple[str, ...]:
    """Return the names of the claims that a pod mounts, each once, in order."""
    volumes = pod.spec.volumes or ()
    sources = [volume.persistent_volume_claim for volume in volumes if volume.persistent_volume_claim]
    return tuple(sorted({source.claim_name for source in sources})) if sources else ()


class SignatureTable:
    """Signatures by number, with how many pods hold each. Mutated only by the snapshot that owns it.

    Of a pod only what constraints ask for counts: of its labels those in `keys`, of its claims those that are
    exclusive. So labels and claims that no other pod has do not make a signature of each pod.

    `assigned`: int64[numbers], the serial at which a number was last assigned to a signature, so that a
    caller that keeps a table by signature knows which entries are new since it last looked. `terminating`:
    bool[numbers]. `labels`: their labels; `forbidding`: their anti-affinity. `left_out`: how many pods have
    more anti-affinity or host ports than is looked at.
    """

    def __init__(self, exclusive: Set[tuple[str, str]]) -> None:
        self.serial = 0
        self.left_out = 0
        self.keys: frozenset[str] = frozenset()
        self.assigned: Ints = np.zeros(64, np.int64)
        self.terminating: Flags = np.zeros(64, np.bool_)
        self.labels = LabelColumns()
        self.anti_affinity = AntiAffinityIndex()
        self._signatures: InternTable[PodSignature] = InternTable()
        self._namespaces: InternTable[str] = InternTable()
        self._ports: InternTable[tuple[HostPort, ...]] = InternTable()
        self._claims: InternTable[tuple[str, ...]] = InternTable()
        self._queues: InternTable[str] = InternTable()
        self._namespace: Ints = np.zeros(64, np.int64)
        self._terms: Ints = np.zeros(64, np.int64)
        self._port: Ints = np.zeros(64, np.int64)
        self._claim: Ints = np.zeros(64, np.int64)
        self._queue: Ints = np.zeros(64, np.int64)
        self._exclusive = exclusive
        self._reduced: dict[int, tuple[PodSignature, PodSignature]] = {}

    def __len__(self) -> int:
        """Return how many signatures there are."""
        return len(self._signatures)

    @property
    def size(self) -> int:
        """Return one more than the highest number in use so far."""
        return self._signatures.size

    # --------------------------------------------------------------------------------- changing

    def acquire(self, signature: PodSignature) -> int:
        """Return the number of a pod's signature and count one more holder of it. O(labels) at the most."""
        reduced = self._reduce(signature)
        number, new = self._signatures.acquire(reduced)
        if new:
            self._enter(number, reduced)
        if reduced.left_out:
            self.left_out += 1
        return number

    def release(self, number: int) -> None:
        """Count one holder less; a signature without holders is forgotten and its number used again."""
        signature = self._signatures.value(number)
        if signature is None:
            raise KeyError(number)
        if signature.left_out:
            self.left_out -= 1
        if not self._signatures.release(number):
            return
        self.labels.drop(number, signature.labels)
        self._namespaces.release(int(self._namespace[number]))
        self.anti_affinity.release(int(self._terms[number]))
        if signature.ports:
            self._ports.release(int(self._port[number]))
        if signature.claims:
            self._claims.release(int(self._claim[number]))
        if signature.queue is not None:
            self._queues.release(int(self._queue[number]))

    def use_keys(self, keys: frozenset[str]) -> None:
        """Count labels of these keys and no others; pods that are there are to be entered anew."""
        self.keys = keys
        self._reduced.clear()

    def reuse_keys(self) -> None:
        """Look again at what is exclusive; its pods are to be entered anew."""
        self._reduced.clear()

    # ---------------------------------------------------------------------------------- reading

    def since(self, serial: int) -> Ints:
        """Return the numbers assigned after a serial, ascending. O(numbers)."""
        return np.flatnonzero(self.assigned[: self.size] > serial)

    def selected_by(self, term: Term, numbers: Ints) -> Ints:
        """Return those of some numbers whose signatures a resolved term selects. O(numbers) a requirement."""
        if term.selector is None:
            return numbers[:0]
        if term.namespace_selector is None:
            numbers = self._in_namespaces(term.namespaces, numbers)
        for requirement in term.selector.requirements:
            if not numbers.size:
                return numbers
            numbers = numbers[self.labels.meets(requirement, numbers)]
        return numbers

    def in_namespace(self, namespace: str, numbers: Ints) -> Ints:
        """Return those of some numbers whose signatures are of a namespace."""
        return self._in_namespaces((namespace,), numbers)

    def of_namespaces(self, namespaces: Set[str]) -> Flags:
        """Return bool[numbers], which signatures are of these namespaces."""
        wanted = [self._namespaces.number(name) for name in namespaces]
        return is_one_of(self._namespace[: self.size], wanted)

    def with_anti_affinity(self, weights: Ints, numbers: Ints) -> Ints:
        """Return int64[numbers], the weights of the signatures' terms. `weights`: int64[groups of terms]."""
        return weights[self._terms[numbers]]

    def of_ports(self, weigh: Callable[[tuple[HostPort, ...]], int], numbers: Ints) -> Ints:
        """Return int64[numbers], what the host ports of the signatures weigh; 0 where they have none."""
        return _weighed(self._ports, self._port[numbers], weigh)

    def of_claims(self, weigh: Callable[[tuple[str, ...]], int], numbers: Ints) -> Ints:
        """Return int64[numbers], what the signatures' exclusive claims weigh; 0 where they have none."""
        return _weighed(self._claims, self._claim[numbers], weigh)

    def of_queues(self, weigh: Callable[[str, str], int], numbers: Ints, *, labelled: bool = False) -> Ints:
        """Return int64[numbers], what namespace and the queue weigh that labels named when pods were placed.

        `labelled`: that they name now. O(numbers · log), and once for each combination that there is.
        """
        placed = np.zeros_like(numbers) if labelled else self._queue[numbers]
        named = [self.labels.of(key, numbers) for key in QUEUE_LABELS]
        different, place = np.unique(
            np.stack([self._namespace[numbers], placed, *named]), axis=1, return_inverse=True
        )
        amounts = []
        for namespace, queue, *values in different.T.tolist():
            asked = self._queues.value(queue)
            if asked is None:
                found = zip(QUEUE_LABELS, values, strict=True)
                asked = asked_for({key: self.labels.value(key, value) for key, value in found})
            amounts.append(weigh(self._namespaces.value(namespace) or "", asked))
        return np.array(amounts, np.int64)[place.reshape(-1)]

    # -------------------------------------------------------------------------------- inner work

    def _in_namespaces(self, names: Set[str] | tuple[str, ...], numbers: Ints) -> Ints:
        wanted = [self._namespaces.number(name) for name in names]
        return numbers[is_one_of(self._namespace[numbers], wanted)]

    def _reduce(self, signature: PodSignature) -> PodSignature:
        """Return the part of a signature that constraints ask for; remembered where many pods share it."""
        known = self._reduced.get(id(signature))
        if known is not None and known[0] is signature:
            return known[1]
        labels = tuple(pair for pair in signature.labels if pair[0] in self.keys)
        claims = tuple(name for name in signature.claims if (signature.namespace, name) in self._exclusive)
        reduced = signature
        if len(labels) != len(signature.labels) or len(claims) != len(signature.claims):
            reduced = msgspec.structs.replace(signature, labels=labels, claims=claims)
        if len(_encode(signature)) > _LARGEST_REMEMBERED:
            return reduced
        if len(self._reduced) >= _REMEMBERED_REDUCED:
            self._reduced.clear()
        self._reduced[id(signature)] = signature, reduced
        return reduced

    def _enter(self, number: int, signature: PodSignature) -> None:
        if number >= self.assigned.size:
            self._lengthen()
        self.serial += 1
        self.assigned[number] = self.serial
        self.terminating[number] = signature.terminating
        self.labels.put(number, signature.labels)
        self._namespace[number], _ = self._namespaces.acquire(signature.namespace)
        self._terms[number] = self.anti_affinity.acquire(signature.anti_affinity)
        self._port[number] = self._ports.acquire(signature.ports)[0] if signature.ports else NONE
        self._claim[number] = self._claims.acquire(signature.claims)[0] if signature.claims else NONE
        queue = signature.queue
        self._queue[number] = NONE if queue is None else self._queues.acquire(queue)[0]

    def _lengthen(self) -> None:
        more = self.assigned.size
        self.assigned, self.terminating = extended(self.assigned, more), extended(self.terminating, more)
        self._namespace, self._terms = extended(self._namespace, more), extended(self._terms, more)
        self._port, self._claim = extended(self._port, more), extended(self._claim, more)
        self._queue = extended(self._queue, more)


def _weighed(values: InternTable[_V], held: Ints, weigh: Callable[[_V], int]) -> Ints:
    """Return int64[…], what the held values weigh, each different one weighed once; 0 for NONE."""
    table = np.zeros(values.size, np.int64)
    for number in np.unique(held).tolist():
        value = values.value(number)
        if value is not None:
            table[number] = weigh(value)
    return np.asarray(table[held])


class _Column:
    """The values of one key: `numbers`: int64[signatures], NONE where a signature lacks it."""

    def __init__(self, size: int) -> None:
        self.values: InternTable[str] = InternTable()
        self.numbers: Ints = np.zeros(size, np.int64)


class LabelColumns:
    """A column for each label key that some signature has.

    Changed only by the table of signatures that owns it.
    """

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}
        self._size = 64

    def __len__(self) -> int:
        """Return how many columns there are."""
        return len(self._columns)

    def put(self, number: int, labels: Iterable[tuple[str, str]]) -> None:
        """Put down the labels of a signature. O(labels)."""
        if number >= self._size:
            more, self._size = self._size, 2 * self._size
            for column in self._columns.values():
                column.numbers = extended(column.numbers, more)
        for key, value in labels:
            known = self._columns.get(key)
            if known is None:
                known = self._columns[key] = _Column(self._size)
            known.numbers[number], _ = known.values.acquire(value)

    def drop(self, number: int, labels: Iterable[tuple[str, str]]) -> None:
        """Take out what `put` put down; a column that no signature needs is freed."""
        for key, _ in labels:
            column = self._columns[key]
            column.values.release(int(column.numbers[number]))
            column.numbers[number] = NONE
            if not len(column.values):
                del self._columns[key]

    def meets(self, requirement: Requirement, numbers: Ints) -> Flags:
        """Return bool[numbers], which signatures meet a requirement. An absent label meets NotIn."""
        column = self._columns.get(requirement.key)
        negative = requirement.operator in ("NotIn", "DoesNotExist")
        if column is None:
            return np.full(numbers.size, negative)
        held = column.numbers[numbers]
        if requirement.operator in ("Exists", "DoesNotExist"):
            return np.asarray((held == NONE) == negative)
        return np.asarray(
            is_one_of(held, (column.values.number(one) for one in requirement.values)) != negative
        )

    def of(self, key: str, numbers: Ints) -> Ints:
        """Return int64[numbers], the number of each signature's value of a label; NONE where it lacks it."""
        column = self._columns.get(key)
        return np.zeros(numbers.size, np.int64) if column is None else column.numbers[numbers]

    def value(self, key: str, number: int) -> str:
        """Return the value of a number of `of`; empty for NONE."""
        return (self._columns[key].values.value(number) or "") if number != NONE else ""


def is_one_of(held: Ints, wanted: Iterable[int]) -> Flags:
    """Return which are among some numbers, NONE not being one."""
    chosen = [number for number in wanted if number != NONE]
    if not chosen:
        return np.zeros(held.size, np.bool_)
    if len(chosen) == 1:
        return np.asarray(held == chosen[0])
    table = np.zeros(max(int(held.max(initial=0)), *chosen) + 1, np.bool_)
    table[chosen] = True
    return np.asarray(table[held])
