"""Writes that the API server takes its time over: a real admission webhook that waits before it allows."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from integration.space import Space
from integration.waiting import NotYet, until
from makeway.dev.pki import Authority
from served import served

_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_LONGEST_SECONDS = 25


@asynccontextmanager
async def nominations_delayed(
    space: Space, witness: str, directory: Path, *, seconds: float
) -> AsyncIterator[None]:
    """Hold every write that nominates a pod of the space for so long, for the length of a block.

    `witness` names any pod of the space; a dry run on it tells when the webhook is in force. `directory`
    gets its certificate.
    """
    asked = asyncio.Event()

    async def review(request: web.Request) -> web.Response:
        wanted: dict[str, Any] = (await request.json())["request"]
        asked.set()
        nominated = wanted["object"]["status"].get("nominatedNodeName")
        if nominated and not wanted["dryRun"]:
            await asyncio.sleep(seconds)
        return web.json_response(
            {
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "response": {"uid": wanted["uid"], "allowed": True},
            }
        )

    authority = Authority(directory)
    pair = authority.serving("webhook")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    async with served(review, context=context) as port:
        await _register(space, f"https://127.0.0.1:{port}/", authority.certificate.read_bytes())
        try:
            await _until_asked(space, witness, asked)
            yield
        finally:
            await space.api.request("DELETE", f"{_WEBHOOKS}/{space.namespace}")


async def _register(space: Space, url: str, certificate: bytes) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}
    webhook = {
        "name": "nominations.tests.makeway.dev",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(certificate).decode()},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": _LONGEST_SECONDS,
        "failurePolicy": "Ignore",
    }
    await space.post(_WEBHOOKS, {"metadata": {"name": space.namespace}, "webhooks": [webhook]})


async def _until_asked(space: Space, witness: str, asked: asyncio.Event) -> None:
    async def ask() -> bool:
        await space.api.request(
            "PATCH",
            f"/api/v1/namespaces/{space.namespace}/pods/{witness}/status",
            query={"dryRun": "All"},
            body=b'{"status": {"message": "x"}}',
            content_type="application/merge-patch+json",
        )
        if not asked.is_set():
            raise NotYet("not asked")
        return True

    await until("the webhook is in force", ask)
