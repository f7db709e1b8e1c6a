"""What the token of the Secrets' keeper cannot do, and what Helm leaves of what the keeper has made."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from integration.charting import NAMESPACE, render
from integration.cluster import RunningCluster
from integration.conftest import Install
from integration.waiting import IN_FORCE_SECONDS, NotYet, until
from makeway.cli.keys.keeping import LABELS, UNREADABLE
from makeway.dev.binaries import HELM
from makeway.dev.build import ensure
from makeway.dev.errors import DevError
from makeway.dev.paths import CHART
from makeway.dev.progress import SilentProgress

KEEPER = f"--as=system:serviceaccount:{NAMESPACE}:makeway-streams"
OWN = "makeway-nats-viewer"
NAME, LABEL = "of this installation alone", "managed-by: makeway"


def secret(name: str, **other: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": LABELS, **other.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", **other}


async def test_who_has_the_keepers_token_makes_no_secret_but_its_own(install: Install) -> None:
    installed = install(render())
    await installed.release.apply()

    async def made(manifest: dict[str, Any]) -> str:
        """Return what the API server says to it."""
        try:
            return await installed.cluster.kubectl("create", KEEPER, "-f", "-", stdin=json.dumps(manifest))
        except DevError as error:
            return str(error)

    async def in_force() -> bool:
        said = await made(secret("probe"))
        await installed.cluster.kubectl("delete", "secret", "-n", NAMESPACE, "probe", "--ignore-not-found")
        if NAME not in said:
            raise NotYet(said)
        return True

    await until("the policy is in force", in_force, seconds=IN_FORCE_SECONDS)
    of_another = {"annotations": {"kubernetes.io/service-account.name": "makeway-planner"}}
    token = secret(OWN, type="kubernetes.io/service-account-token", metadata=of_another)
    release = secret("sh.helm.release.v1.makeway.v1", type="helm.sh/release.v1")

    assert "of type Opaque alone" in await made(token)
    assert NAME in await made(release)
    assert NAME in await made(secret(f"{OWN}-2"))
    generated = secret(OWN)
    generated["metadata"] = {"generateName": OWN, "namespace": NAMESPACE, "labels": LABELS}
    assert NAME in await made(generated)
    assert LABEL in await made(secret(OWN, metadata={"labels": {}}))
    assert LABEL in await made(secret(OWN, metadata={"labels": {"app.kubernetes.io/managed-by": "Helm"}}))
    assert "created" in await made(secret(OWN))


async def test_check_names_a_secret_that_cannot_be_read_and_all_others_are_made(install: Install) -> None:
    installed = install(render())
    await installed.release.apply()
    bad = secret(OWN, data={"password": b64encode(b"\xff").decode()})
    await installed.cluster.kubectl("create", "-f", "-", stdin=json.dumps(bad))
    streams = installed.release.start_streams()

    async def others() -> bool:
        names = await installed.cluster.kubectl("get", "secret", "-n", NAMESPACE, "-o", "name")
        if "makeway-signing-planner" not in names or "makeway-nats-authority" not in names:
            raise NotYet(names)
        return True

    await until("the others are made", others)
    noted = json.loads(await installed.cluster.kubectl("get", "secret", "-n", NAMESPACE, OWN, "-o", "json"))
    assert "decode" in noted["metadata"]["annotations"][UNREADABLE]
    assert noted["data"] == bad["data"]
    assert f"name={OWN}" in installed.release.log(streams)

    await installed.cluster.kubectl("delete", "secret", "-n", NAMESPACE, OWN)
    assert (await asyncio.to_thread(installed.release.secret, OWN, "url"))["user"] == "viewer"


@pytest_asyncio.fixture
async def helm(chart_control_plane: RunningCluster) -> AsyncIterator[Any]:
    """Give a function that runs Helm; what it has installed is taken away at the end."""
    binary = ensure([HELM], SilentProgress())[HELM.name]

    async def run(*arguments: str) -> str:
        command = [str(binary), *arguments, f"--namespace={NAMESPACE}"]
        environment = {**os.environ, "KUBECONFIG": str(chart_control_plane.info.kubeconfig)}
        done = await asyncio.to_thread(
            lambda: subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run
    await run("uninstall", "makeway", "--ignore-not-found", "--no-hooks")
    await chart_control_plane.kubectl("delete", "--ignore-not-found", "--timeout=60s", "namespace", NAMESPACE)


@pytest.mark.parametrize("revision", ["1", "2"])
async def test_a_rollback_leaves_the_public_keys_as_they_were_made(
    chart_control_plane: RunningCluster, helm: Any, revision: str
) -> None:
    async def keys() -> dict[str, str]:
        get = ("get", "configmap", "-n", NAMESPACE, "makeway-keys", "-o", "json")
        return dict(json.loads(await chart_control_plane.kubectl(*get)).get("data", {}))

    await helm("install", "makeway", str(CHART), "--create-namespace")
    patch = json.dumps({"data": {"order.pem": "as the keeper made it"}})
    await chart_control_plane.kubectl("patch", "configmap", "-n", NAMESPACE, "makeway-keys", "-p", patch)
    await helm("upgrade", "makeway", str(CHART), "--set=log.level=debug")
    await helm("upgrade", "makeway", str(CHART), "--set=log.level=warning")

    await helm("rollback", "makeway", revision)

    assert await keys() == {"order.pem": "as the keeper made it"}
