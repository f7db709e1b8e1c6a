"""What is tried again, when, and until when.

The vocabulary is kopf's: a `TemporaryError` may go away by itself, a `PermanentError` will not.
Temporary: 429, also of a disruption budget, 5xx, 408, conflicts (409), and no answer at all. Permanent at
once: every other refusal, such as 403 from an admission policy and 422. A 401 is temporary: the token is read
again; so is, for `RIGHTS_SECONDS`, a 403 from RBAC to what was allowed before. What means "gone" (404,
another UID) never gets here; `cluster` turns it into a value.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Literal, Protocol, TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from makeway.evictor.metrics import EvictorMetrics
from makeway.runtime.kube import ApiError, ApiUnavailable

_log = structlog.get_logger()

T = TypeVar("T")

Reason = Literal[
    "throttled", "budget", "server-error", "unavailable", "conflict", "stale", "unauthorized", "bus"
]
"""Why something is tried again: the label of the retry metric."""

BUDGET_CAUSE = "DisruptionBudget"
"""policy/v1 DisruptionBudgetCause: a cause of an eviction's 429, with a message that names the budget."""

SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
"""In the message of the 500 by which the eviction API refuses a pod that several budgets cover, for good."""

NO_RIGHT = 'forbidden: User "'
"""In the message of a 403 by which kube-apiserver's authorizers refuse; admission's has none."""

DENIED_BY_WEBHOOK = "denied the request"
"""In the message by which kube-apiserver passes on what an admission webhook refuses, with its status."""

RIGHTS_SECONDS = 10.0
"""How long a right that was there before may be missing: an API server that starts refuses everything until
it has read roles and their bindings."""

BASE_DELAY_SECONDS = 0.1
"""First wait. An API server that restarts or elects needs seconds, a conflict needs milliseconds."""

MAX_DELAY_SECONDS = 5.0
"""Longest wait where the server names none, so that recovery is noticed soon."""

ROLLBACK_MAX_DELAY_SECONDS = 30.0
"""The same for rollbacks, which go on for as long as it takes."""


class TemporaryError(Exception):
    """It did not work now; it may later, not before `retry_after_seconds` where the server said so."""

    def __init__(self, reason: Reason, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class PermanentError(Exception):
    """The API server refused, and would again. `status`: the HTTP status, 0 where nothing was sent to it."""

    def __init__(self, reason: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status


def _seconds_since_boot() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Clock(Protocol):
    """Time for waiting and for deadlines; tests have a virtual one."""

    def now(self) -> datetime:
        """The time, UTC."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock; where that is set back, this one goes on: looks that orders rest on stay as old.

    `steady`: seconds that nothing sets, and that pass while the machine is suspended.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _seconds_since_boot
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._booted_at = wall() - steady()

    def now(self) -> datetime:
        """The time, UTC."""
        steady = self._steady()
        self._booted_at = max(self._booted_at, self._wall() - steady)
        return datetime.fromtimestamp(self._booted_at + steady, UTC)

    def set_anew(self) -> None:
        """Follow the machine's clock wherever it is: this one has turned out to be wrong."""
        self._booted_at = self._wall() - self._steady()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def classify(error: ApiError | ApiUnavailable) -> TemporaryError | PermanentError:
    """Sort a failed call into what may be tried again and what may not."""
    if isinstance(error, ApiUnavailable):
        return TemporaryError("unavailable", str(error))
    retry_after = error.retry_after_seconds
    if error.status == 429 and BUDGET_CAUSE in error.causes:
        return TemporaryError("budget", error.causes[BUDGET_CAUSE] or str(error), retry_after)
    if error.status == 500 and SEVERAL_BUDGETS in error.message:
        return PermanentError("several-budgets", error.message)
    if error.status == 429:
        return TemporaryError("throttled", str(error), retry_after)
    if error.status >= 500 or error.status == 408:
        return TemporaryError("server-error", str(error), retry_after)
    if error.status == 409:
        return TemporaryError("conflict", str(error), retry_after)
    if error.status == 401:
        return TemporaryError("unauthorized", str(error), retry_after)
    return PermanentError(error.reason, str(error), error.status)


def is_failed_test(error: BaseException | None) -> bool:
    """Report whether a JSON patch was refused since a test of it does not hold (422).

    The API server gives no cause for that. It gives one where a ValidatingAdmissionPolicy denies, or the
    object would be invalid; a webhook's denial is known by its words.
    """
    if not isinstance(error, ApiError) or error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
        return False
    return not error.causes and DENIED_BY_WEBHOOK not in error.message


class MissingRights:
    """Since when what was allowed before has been refused for want of a right, by operation."""

    def __init__(self) -> None:
        self._since: dict[str, float | None] = {}

    def allowed(self, operation: str) -> None:
        """Note that an operation was carried out."""
        self._since[operation] = None

    def may_return(self, operation: str, error: ApiError, now: float) -> bool:
        """Report whether the right to an operation may be back soon. `now`: seconds, from any beginning."""
        if error.status != HTTPStatus.FORBIDDEN or NO_RIGHT not in error.message:
            return False
        if operation not in self._since:
            return False
        since = self._since[operation]
        if since is None:
            since = self._since[operation] = now
        return now - since <= RIGHTS_SECONDS


def delay_seconds(attempt: int, error: BaseException | None, longest: float, jitter: float) -> float:
    """How long to wait after attempt number `attempt` (from 1) failed; `jitter` is in [0, 1).

    The server's Retry-After is what is waited, with up to a tenth on top so that clients spread; without
    one, or with 0, exponential from `BASE_DELAY_SECONDS` to `longest`, half of it jittered.
    """
    if isinstance(error, TemporaryError) and error.retry_after_seconds:
        return error.retry_after_seconds * (1 + jitter / 10)
    ceiling = min(longest, BASE_DELAY_SECONDS * 2.0 ** min(attempt - 1, 16))
    return ceiling * (0.5 + jitter / 2)


def reporter(metrics: EvictorMetrics, operation: str) -> Callable[[TemporaryError, int], None]:
    """An `on_retry` that counts and logs under this operation's name."""

    def report(error: TemporaryError, attempt: int) -> None:
        metrics.retries.labels(operation=operation, reason=error.reason).inc()
        _log.warning("retrying", operation=operation, attempt=attempt, reason=error.reason, error=str(error))

    return report


async def retrying(
    act: Callable[[], Awaitable[T]],
    *,
    clock: Clock,
    deadline: datetime | None,
    on_retry: Callable[[TemporaryError, int], None],
    longest_delay_seconds: float = MAX_DELAY_SECONDS,
) -> T:
    """Call `act` until it works or raises anything but a `TemporaryError`.

    Ends, raising the last error, where the next attempt would begin at or after `deadline`
    (None: never). `on_retry` is told of each failure that is followed by another attempt, with the
    attempt's number. Cancellation is never swallowed: only that one error is caught.
    """

    def failure(state: RetryCallState) -> BaseException | None:
        return state.outcome.exception() if state.outcome is not None else None

    def wait(state: RetryCallState) -> float:
        return delay_seconds(state.attempt_number, failure(state), longest_delay_seconds, random.random())

    def stop(state: RetryCallState) -> bool:
        if deadline is None:
            return False
        return clock.now().timestamp() + state.upcoming_sleep >= deadline.timestamp()

    def before_sleep(state: RetryCallState) -> None:
        if isinstance(error := failure(state), TemporaryError):
            on_retry(error, state.attempt_number)

    async def attempt() -> T:  # tenacity awaits nothing of a lambda
        return await act()

    attempts = AsyncRetrying(
        sleep=clock.sleep,
        stop=stop,
        wait=wait,
        retry=retry_if_exception_type(TemporaryError),
        before_sleep=before_sleep,
        reraise=True,
    )
    return await attempts(attempt)
