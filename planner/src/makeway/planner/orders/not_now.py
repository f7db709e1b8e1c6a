"""Who asks for a plan, and why one is not carried out now: the same for a pod and for a group. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Asker:
    """A preemptor: the UID of a pod or a PodGroup, its namespace and priority."""

    uid: str
    namespace: str
    priority: int
    is_pod: bool = True


@dataclass(frozen=True, slots=True)
class NotNow:
    """Why no order begins now, when to ask again at the latest, and what has to change before that.

    `reason`: of the refusal; `message`: a sentence for the condition of who waits. `depends_on`: objects, as
    (kind, namespace, name).
    """

    reason: str
    message: str
    retry_at: datetime
    depends_on: tuple[tuple[str, str, str], ...] = ()
