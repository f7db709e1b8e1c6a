"""The page against a real API server and NATS: on localhost, and in a cluster for users with a token."""

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.preempting import run_victims, sized
from integration.space import Space
from integration.waiting import NotYet, until, until_seen
from makeway.dev.api import AdminApi
from makeway.dev.kubeconfig import write_with_token
from makeway.dev.paths import RBAC_MANIFESTS

MAKEWAY = "makeway-system"


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from makeway.cli.main import main; main()",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.communicate(), 20)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


async def entries(client: aiohttp.ClientSession, address: str, token: str) -> list[dict[str, Any]]:
    """Return what the page lists at first."""
    found: list[dict[str, Any]] = []
    async with client.get(f"{address}/api/events", headers={"Authorization": f"Bearer {token}"}) as response:
        async for line in response.content:
            if line.startswith(b"data: "):
                changes = json.loads(line.removeprefix(b"data: "))
                found += changes["entries"]
                if not changes["more"]:
                    break
    return found


async def asked(client: aiohttp.ClientSession, url: str, token: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with client.get(url, headers=headers) as response:
            kind = response.headers["Content-Type"]
            return response.status, await (response.json() if "json" in kind else response.text())
    except aiohttp.ClientConnectionError as error:
        raise NotYet(str(error)) from error


async def test_on_localhost_it_shows_a_preemption_that_has_just_been(space: Space) -> None:
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("low", "low", 500).on("n1"))
    kubeconfig = str(space.cluster.info.kubeconfig)
    where = ("--kubeconfig", kubeconfig, "--nats-url", space.cluster.info.nats_url)
    async with running("ui", *where) as process, aiohttp.ClientSession() as client:
        assert process.stdout is not None
        printed = (await asyncio.wait_for(process.stdout.readline(), 120)).decode().strip()
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]+)", printed)
        assert found, printed
        address, token = found.groups()
        await space.create(sized("urgent", "high", 500))
        await space.until_gone("low")

        async def told() -> dict[str, Any]:
            found = await entries(client, address, token)
            for entry in found:
                pod = entry.get("namespace"), entry.get("name"), entry["result"]
                if pod == (space.namespace, "urgent", "succeeded"):
                    return dict(entry)
            raise NotYet(str(found[:3]))

        entry = await until("the page tells of it", told, seconds=60)
        assert [one["name"] for one in entry["victims"]] == ["low"]
        assert (await asked(client, f"{address}/api/events"))[0] == 401
        status, grid = await asked(client, f"{address}/api/cluster", token)
        assert (status, entry["node"] in grid["names"]) == (200, True)
        status, story = await asked(client, f"{address}/api/story?what={entry['orderId']}", token)
        assert (status, story["madeRoom"][0]["outcome"]["result"]) == (200, "succeeded")
        status, now = await asked(client, f"{address}/api/now", token)
        assert (status, set(now)) == (200, {"mode", "stops", "byPart", "parts"})


async def account(api: AdminApi, name: str, role: str) -> str:
    """Make a service account with a cluster role, where one is given; return a token of it."""
    metadata = {"name": name, "namespace": MAKEWAY}
    await asyncio.to_thread(api.apply, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    if role:
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", **metadata}],
        }
        await asyncio.to_thread(api.apply, binding)
    return await asyncio.to_thread(api.token, MAKEWAY, name, 600)


async def test_in_a_cluster_it_is_for_those_who_may_list_pods_and_nodes_everywhere(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    api, info = cluster.owned.api, cluster.info
    await asyncio.to_thread(api.apply_file, RBAC_MANIFESTS / "ui.yaml")
    own = await asyncio.to_thread(api.token, MAKEWAY, "makeway-ui", 600)
    kubeconfig = write_with_token(
        tmp_path / "ui.yaml", info.server, info.directory / "pki" / "ca.pem", own, "makeway-ui"
    )
    outsider, admin = await account(api, "page-nobody", ""), await account(api, "page-admin", "cluster-admin")
    viewer = await account(api, "page-viewer", "view")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    arguments = ["ui-server", f"--page-listen=127.0.0.1:{port}", "--listen=127.0.0.1:0"]
    arguments += [f"--kubeconfig={kubeconfig}", f"--nats-url={info.nats_url}"]
    jar = aiohttp.CookieJar(unsafe=True)  # also of an address without a name
    async with running(*arguments), aiohttp.ClientSession(cookie_jar=jar) as client:
        code, _ = await until_seen(
            "the page answers", lambda: asked(client, f"{address}/livez"), lambda seen: seen[0], seconds=120
        )
        assert code == 200
        refused = {
            "no token": await asked(client, f"{address}/api/cluster"),
            "made up": await asked(client, f"{address}/api/cluster", "made-up"),
            "no rights": await asked(client, f"{address}/api/cluster", outsider),
            "no nodes": await asked(client, f"{address}/api/cluster", viewer),
        }
        assert {name: status for name, (status, _) in refused.items()} == dict.fromkeys(refused, 401)
        assert "may not list pods in all namespaces" in refused["no rights"][1]
        assert "may not list nodes in all namespaces" in refused["no nodes"][1]

        status, grid = await asked(client, f"{address}/api/cluster", admin)
        assert (status, grid.get("warnings")) == (200, [])
        assert (await asked(client, f"{address}/api/now", admin))[0] == 200
        form = {"token": admin}
        headers = {"Origin": address}
        async with client.post(
            f"{address}/login", data=form, headers=headers, allow_redirects=False
        ) as response:
            assert response.status == 303
        status, session = await asked(client, f"{address}/api/session")
        assert (status, session) == (
            200,
            {"user": f"system:serviceaccount:{MAKEWAY}:page-admin", "form": True},
        ), "by the cookie"
        async with client.post(f"{address}/logout", headers=headers, allow_redirects=False) as response:
            assert response.status == 303
        assert (await asked(client, f"{address}/api/now"))[0] == 401
