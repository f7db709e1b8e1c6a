"""Signing as the parts of a cluster do, and forging; and what a kubelet would do with the Secrets of keys."""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from background import background
from integration.cluster import RunningCluster
from makeway.bus.signing.keys import SigningKind
from makeway.bus.signing.signatures import Signatures
from makeway.dev import signing_keys
from makeway.dev.access import NAMESPACE
from makeway.runtime.kube import Api, ApiError


def signatures_of(cluster: RunningCluster) -> Signatures:
    """Return what signs as any part of the cluster, with the keys as they are now, and verifies nothing."""
    directory = cluster.owned.directory
    keys = {kind: signing_keys.read(directory, kind) for kind in SigningKind}
    return Signatures(signing={kind: key for kind, key in keys.items() if key is not None})


async def store_secrets(cluster: RunningCluster) -> None:
    """Put the cluster's private keys into Secrets, as `makeway keys new` does."""
    for service in signing_keys.KINDS:
        files = signing_keys.directory(cluster.owned.directory, service)
        name = f"makeway-signing-{service}"
        await cluster.kubectl("delete", "secret", name, "-n", NAMESPACE, "--ignore-not-found")
        await cluster.kubectl("create", "secret", "generic", name, "-n", NAMESPACE, f"--from-file={files}")


@asynccontextmanager
async def mounting(cluster: RunningCluster, api: Api, *, every: float = 1.0) -> AsyncIterator[None]:
    """Write the Secrets into the directories of the parts as often as that."""

    async def mount_forever() -> None:
        while True:
            for service in signing_keys.KINDS:
                await _mount(cluster, api, service)
            await asyncio.sleep(every)

    async with background(mount_forever()):
        yield


async def _mount(cluster: RunningCluster, api: Api, service: str) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/makeway-signing-{service}"
    try:
        data = json.loads(await api.request("GET", path))["data"]
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return
        raise
    directory = signing_keys.directory(cluster.owned.directory, service)
    for name, value in data.items():
        new = directory / f".{name}"
        new.write_bytes(b64decode(value))
        new.replace(directory / name)
    for old in directory.glob("*.pem"):
        if old.name not in data:
            old.unlink()
