"""Reading the record of tolerations, where a victim's PriorityClass is gone."""

from __future__ import annotations

import msgspec
import structlog

from makeway.core.policy.toleration_record import (
    CONFIGMAP,
    UNREAD_RECORD,
    RecordError,
    TolerationRecord,
    parse_record,
)
from makeway.evictor.retry import TemporaryError, classify
from makeway.runtime.configmaps import read_configmap
from makeway.runtime.kube import ApiError, ApiUnavailable, Requests
from makeway.runtime.shared_reads import SharedReads

_log = structlog.get_logger()


class TolerationReads:
    """One process's; it remembers the last record that could be used."""

    def __init__(self, api: Requests, *, namespace: str) -> None:
        """`namespace`: makeway's own."""
        self._api = api
        self._last = UNREAD_RECORD
        self._reads = SharedReads(self._read)
        self._namespace = namespace

    async def read(self) -> TolerationRecord:
        """Return the record as a read finds it that begins after this call, straight from storage.

        Where it is missing, may not be read or cannot be decoded, the last one that could be used. Raises
        TemporaryError where another try may help.
        """
        return await self._reads(CONFIGMAP)

    async def _read(self, name: str) -> TolerationRecord:
        try:
            if (found := await read_configmap(self._api, self._namespace, name)) is None:
                raise RecordError(f"there is no ConfigMap {name}")
            self._last = parse_record(found.data or {})
        except (ApiError, ApiUnavailable) as error:
            failure = classify(error)
            if isinstance(failure, TemporaryError):
                raise failure from error
            _log.warning("toleration_record_unusable", configmap=name, error=str(error))
        except (msgspec.DecodeError, RecordError) as error:
            _log.warning("toleration_record_unusable", configmap=name, error=str(error))
        return self._last


async def unread_record() -> TolerationRecord:
    """Return the record of one who reads none."""
    return UNREAD_RECORD
