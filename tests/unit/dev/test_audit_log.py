from pathlib import Path

import msgspec
import pytest

from makeway.dev.audit_log import AuditLog

pytestmark = pytest.mark.tools

REFUSED = {
    "kind": "Event",
    "auditID": "1",
    "stage": "ResponseStarted",
    "requestURI": "/api/v1/namespaces/a/configmaps/b",
    "verb": "get",
    "user": {},
    "objectRef": {"resource": "configmaps", "namespace": "a", "name": "b"},
    "responseStatus": {"code": 401},
    "requestReceivedTimestamp": "2026-11-24T02:47:34.650336Z",
    "stageTimestamp": "2026-11-24T02:47:34.901314Z",
}


def test_a_request_whose_credentials_were_refused_is_of_no_user(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(msgspec.json.encode(REFUSED) + b"\n")

    (event,) = AuditLog(path, whole=True).events()

    assert (event.user, event.code, event.accepted) == ("", 401, False)
