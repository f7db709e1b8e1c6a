"""Leadership by a Kubernetes Lease, supervised: the holder of the lease does the work, and no other process.

An optimisation, never a fence: between a lease's end and the moment its holder notices, two may work,
and what they do must be safe all the same. What existing clients get wrong is done right here: a refused
connection does not end it, an API that hangs does not keep a leader leading past its lease, and work that
has crashed is not followed by more renewals. A candidate that cannot do the work does not take the lease,
one that cannot do it well leaves a free lease to the others for a moment, and a holder that can do it no
more releases it, so that it does not lead beside a healthy standby. The rules
are client-go's leaderelection: others trust a record for `duration` after *they* saw it change, so clocks
need not agree.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

import msgspec
import structlog

from makeway.core.k8s.times import api_time
from makeway.runtime.kube import ApiError, ApiUnavailable, TypedApis

END_SECONDS = 5.0
"""How long work that is cancelled may take to end. What goes on for longer only ends with its process."""

LONGEST_IMPAIRED = 300.0
"""How long at the most an impaired holder keeps the lease, where it was impaired each time it gave it up."""

_log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class LeaseSettings:
    """Which lease, and how often it is renewed. Times in seconds.

    They are shorter than kube-scheduler's: the successor of a planner that is killed answers within 10 s. One
    that loses the Lease for a hiccup of the API server loses nothing, since the other is warm.

    duration: others wait so long after the last renewal they saw before they take the lease.
    renew_within: a holder that has not renewed for so long stops its work; less than `duration`.
    retry: between two attempts to get or to renew it.
    unfit_for, impaired_for: a holder that cannot do the work, or not well, for so long releases the lease,
    and leaves it to the others for `duration`. What passes sooner moves no lease. While it stays impaired,
    each further `impaired_for` is twice as long, up to LONGEST_IMPAIRED: where all are, the lease rests.
    leave_for: an impaired candidate takes only a lease that has been free for so long; more than two
    `retry`, in which a healthy one has taken it.
    """

    namespace: str
    name: str
    duration: float = 6.0
    renew_within: float = 4.0
    retry: float = 1.0
    unfit_for: float = 10.0
    impaired_for: float = 60.0
    leave_for: float = 5.0


class _Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


_decode = msgspec.json.Decoder(_Lease).decode


class _LastingCondition:
    """A trouble that counts once it has lasted for some seconds without a break, as far as was looked.

    After the lease was given up for it, it has to last twice as long, up to `longest`, until it has passed.
    """

    def __init__(self, trouble: Callable[[], str], seconds: float, longest: float) -> None:
        self.since: float | None = None
        self._trouble = trouble
        self._seconds = self._wanted = seconds
        self._longest = max(seconds, longest)

    def lasting(self) -> str:
        """Return the trouble where it has lasted; else nothing."""
        trouble = self.observe()
        if not trouble:
            return ""
        now = time.monotonic()
        if self.since is None:
            self.since = now
        return trouble if now - self.since > self._wanted else ""

    def observe(self) -> str:
        """Return the trouble, however long it has lasted; where it has passed, forget how long it had to."""
        trouble = self._trouble()
        if not trouble:
            self.since = None
            self._wanted = self._seconds
        return trouble

    def gave_up(self) -> None:
        """Take note that the lease was given up for it."""
        self._wanted = min(2 * self._wanted, self._longest)


def may_take(free_for: float, *, unfit: str, impaired: str, leave_for: float) -> bool:
    """Report whether a candidate may take a lease that has been free for so many seconds.

    Below 0 it is held. One that is unfit takes none, and one that is impaired none that a healthy candidate
    could still take.
    """
    return not unfit and free_for >= (leave_for if impaired else 0.0)


class StepDown(Exception):  # noqa: N818 - a turn that the work takes, no failure of the process
    """Raised by the work: it cannot be done here now. The lease is given up, and tried for again later."""


class Leadership:
    """One candidate for one lease.

    `unfit()` says why this candidate cannot do the work at the moment, `impaired()` why another would do it
    better; each is empty where nothing is wrong. See `may_take`. `annotations()`: what to write on the lease
    with each renewal; others that it has stay.
    """

    def __init__(
        self,
        api: TypedApis,
        settings: LeaseSettings,
        identity: str,
        unfit: Callable[[], str] = lambda: "",
        impaired: Callable[[], str] = lambda: "",
        *,
        annotations: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._api = api
        self._unfit = unfit
        self._impaired = impaired
        self._annotations = annotations
        self._troubles = (
            # One that is unfit takes no lease, so it need not be patient.
            _LastingCondition(unfit, settings.unfit_for, settings.unfit_for),
            _LastingCondition(impaired, settings.impaired_for, LONGEST_IMPAIRED),
        )
        self.settings = settings
        self._identity = identity
        self._seen: _Lease | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self.leading = False
        self.holder = ""
        self.epoch = 0
        """`leaseTransitions` of the last lease that was ours: the fence of what is written under it."""

    async def run(self, work: Callable[[], Awaitable[object]]) -> NoReturn:
        """Work while leading, wait while not, for ever. The work is cancelled when the lease is lost.

        Work that ends while leading ends this too: with its own error, or RuntimeError where it returned.
        So does work that goes on though it was cancelled. `StepDown` only releases the lease.
        """
        while True:
            for trouble in self._troubles:
                trouble.observe()
            if not self._unfit() and await self._try():
                _log.info("leading", lease=self.settings.name, holder=self._identity)
                if await self._lead(work):
                    # The others have their turn first.
                    await asyncio.sleep(self.settings.duration)
                else:
                    _log.warning("leadership_lost", lease=self.settings.name, holder=self.holder)
            await asyncio.sleep(self.settings.retry * (0.8 + random.random() * 0.4))

    async def _lead(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Work and renew until the lease is lost, or given up: True."""
        task = asyncio.ensure_future(work())
        self.leading = True
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=self.settings.retry)
                if done:
                    if not task.cancelled():
                        task.result()
                    raise RuntimeError("the leader's work ended; it is meant to run for ever")
                for trouble in self._troubles:
                    if why := trouble.lasting():
                        trouble.gave_up()
                        raise StepDown(why)
                if not await self._try() and not self._still_held():
                    return False
        except StepDown as why:
            _log.warning("leadership_given_up", lease=self.settings.name, reason=str(why))
            return True
        finally:
            self.leading = False
            for trouble in self._troubles:
                trouble.since = None
            task.cancel()
            # What the work raised has been raised above, or it was cancelled.
            _, going_on = await asyncio.wait({task}, timeout=END_SECONDS)
            if going_on:
                raise RuntimeError("the leader's work does not end though it was cancelled; end the process")
            await self._release()

    def _still_held(self) -> bool:
        """Whether a failed renewal may be tried again: no other holder has it, and it has not run out."""
        return self.holder == self._identity and (
            time.monotonic() - self._renewed_at < self.settings.renew_within
        )

    async def _try(self) -> bool:
        """Get or renew the lease, once, within what is left of it. Returns whether it is ours now."""
        left = self.settings.renew_within
        if self.leading:
            left = max(0.1, left - (time.monotonic() - self._renewed_at))
        try:
            async with asyncio.timeout(left):
                return await self._try_once()
        except (ApiError, ApiUnavailable, TimeoutError, msgspec.DecodeError) as error:
            _log.warning(
                "lease_not_reached", lease=self.settings.name, error=str(error) or type(error).__name__
            )
            return False

    async def _try_once(self) -> bool:
        began = time.monotonic()
        try:
            lease = await self._get(5.0)
        except ApiError as error:
            if error.status != 404:
                raise
            lease = _Lease(_Metadata(name=self.settings.name, namespace=self.settings.namespace))
        self._read(lease)
        if self.holder != self._identity:
            free_for = time.monotonic() - self._seen_at - (self.settings.duration if self.holder else 0.0)
            unfit, impaired = self._unfit(), self._impaired()
            if not may_take(free_for, unfit=unfit, impaired=impaired, leave_for=self.settings.leave_for):
                return False
        return await self._write(lease, began)

    def _read(self, lease: _Lease) -> None:
        """Note the record, and when it was first seen to be as it is."""
        self.holder = lease.spec.holder_identity or ""
        if self._seen is None or self._seen.spec != lease.spec:
            self._seen = lease
            self._seen_at = time.monotonic()

    async def _write(self, lease: _Lease, began: float) -> bool:
        now = api_time(datetime.now(UTC), "microseconds")
        spec = lease.spec
        mine = self.holder == self._identity
        renewed = _Spec(
            holder_identity=self._identity,
            lease_duration_seconds=int(self.settings.duration),
            acquire_time=spec.acquire_time if mine else now,
            renew_time=now,
            lease_transitions=(spec.lease_transitions or 0) + (0 if mine or spec.renew_time is None else 1),
        )
        noted = {**lease.metadata.annotations, **self._annotations()}
        annotated = _Lease(msgspec.structs.replace(lease.metadata, annotations=noted))
        if not await self._put(annotated, renewed):
            return False
        self.holder = self._identity
        self.epoch = renewed.lease_transitions or 0
        # The lease runs from before the request was sent: others may have seen it as early as that.
        self._renewed_at = began
        return True

    async def _put(self, lease: _Lease, spec: _Spec) -> bool:
        """Create or replace the record at the version that was read; False where another was first."""
        body = msgspec.to_builtins(_Lease(lease.metadata, spec))
        leases, where = self._api.coordination, (self.settings.namespace, body)
        try:
            if lease.metadata.resource_version:
                replace = leases.replace_namespaced_lease
                await self._api.call(replace, self.settings.name, *where, timeout_seconds=5.0)
            else:
                await self._api.call(leases.create_namespaced_lease, *where, timeout_seconds=5.0)
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    async def _release(self) -> None:
        """Release the lease, so that the next leader need not wait for its end. Best effort."""
        if self.holder != self._identity:
            return
        with contextlib.suppress(ApiError, ApiUnavailable, TimeoutError, msgspec.DecodeError):
            async with asyncio.timeout(1):
                lease = await self._get(1.0)
                if lease.spec.holder_identity == self._identity:
                    released = msgspec.structs.replace(lease.spec, holder_identity="")
                    if await self._put(lease, released):
                        self._read(_Lease(lease.metadata, released))

    async def _get(self, seconds: float) -> _Lease:
        read, settings = self._api.coordination.read_namespaced_lease, self.settings
        answer = await self._api.call(read, settings.name, settings.namespace, timeout_seconds=seconds)
        return _decode(answer)
