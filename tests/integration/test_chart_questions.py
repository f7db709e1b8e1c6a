"""The chart with `apiserver.enabled`: a user with `view` in one namespace asks about its pods alone."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from integration.builders import make_node
from integration.charting import NAMESPACE, render
from integration.cluster import RunningCluster
from integration.conftest import Install
from integration.granting import denied, grants, unused
from integration.installing import Installed, ours
from integration.space import Space, another_namespace
from integration.waiting import NotYet, until
from makeway.cli.text import HIDDEN
from makeway.dev.kubeconfig import write_with_token
from makeway.dev.processes import Process

ROOT = "/apis/ask.makeway.dev/v1"
QUEUES = (
    "queues.document.partitions[0].name=default",
    "queues.document.partitions[0].queues[0].name=root",
    "queues.document.partitions[0].queues[0].queues[0].name=shared",
    "queues.document.partitions[0].queues[0].queues[0].resources.max.vcore=9",
)


@dataclass
class Asking:
    """The installation, a namespace with a tenant, and another one whose pod takes the place of its pod."""

    installed: Installed
    space: Space
    other: str
    server: Process
    port: int
    directory: Path

    @property
    def cluster(self) -> RunningCluster:
        return self.space.cluster

    async def user(self, name: str, *, role: str = "") -> Path:
        """Return the kubeconfig of a service account of the space, with a role in its namespace."""
        core = f"/api/v1/namespaces/{self.space.namespace}"
        access = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.space.namespace}"
        await self.space.post(f"{core}/serviceaccounts", {"metadata": {"name": name}})
        if role:
            subject = {"kind": "ServiceAccount", "name": name, "namespace": self.space.namespace}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
            binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
            await self.space.post(f"{access}/rolebindings", binding)
        info, api = self.cluster.info, self.cluster.owned.api
        token = await asyncio.to_thread(api.token, self.space.namespace, name, 600)
        authority = info.directory / "pki" / "ca.pem"
        return write_with_token(self.directory / f"{name}.yaml", info.server, authority, token, name)


@pytest_asyncio.fixture
async def asking(install: Install, tmp_path: Path) -> AsyncIterator[Asking]:
    """Install everything, and let a pod of another namespace take the place of `mine`."""
    manifests = render("bridge=plugin", "policy.document.mode=enforce", "apiserver.enabled=true", *QUEUES)
    installed = install(manifests)
    await installed.come_up()
    await installed.start_services()
    server, port = await installed.release.start_apiserver()
    async with installed.space() as space, another_namespace(space) as other:
        await space.add_nodes(make_node("n1").cpu(2))
        await space.run(ours("mine", "low", 2))
        manifest = space.manifest(ours("secret-model", "mid", 2))
        manifest["metadata"]["namespace"] = other
        await space.post(f"/api/v1/namespaces/{other}/pods", manifest)
        await space.until_gone("mine", seconds=60)
        yield Asking(installed, space, other, server, port, tmp_path)


async def makeway(kubeconfig: Path, *command: str, stdin: str = "") -> tuple[int, str, str]:
    """Run a command as the user of a kubeconfig, who was told nothing of NATS."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "MAKEWAY_NAMESPACE": NAMESPACE}
    executable = str(Path(sys.executable).parent / "makeway")
    done = await asyncio.create_subprocess_exec(
        executable, *command, env=environment, stdin=-1, stdout=-1, stderr=-1
    )
    output, errors = await done.communicate(stdin.encode())
    return done.returncode or 0, output.decode(), errors.decode()


def pod(name: str, namespace: str = "") -> str:
    """A pod that asks for a node as a whole, at the highest priority."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    spec = {"priorityClassName": "high", "containers": [container]}
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


async def test_a_tenant_asks_about_its_own_pods_and_reads_no_name_of_another(asking: Asking) -> None:
    space = asking.space
    tenant = await asking.user("tenant", role="view")
    own = f"{space.namespace}/mine"

    async def told() -> str:
        code, text, error = await makeway(tenant, "why", own)
        if code:
            raise NotYet(error)
        return text + error

    text = await until("the tenant is answered", told, seconds=60, every=1.0)
    assert f"{own} was" in text
    assert f"for:   {HIDDEN} (priority" in text
    assert "the API ask.makeway.dev has answered" in text

    await space.create(ours("waits", "low", 2))
    urgent = json.dumps(space.manifest(ours("urgent", "high", 2)))
    answers = [text]
    for command, stdin in (
        (("why", own, "-o", "json"), ""),
        (("why", f"{space.namespace}/waits"), ""),
        (("why", f"{space.namespace}/waits", "-o", "json"), ""),
        (("simulate", "-f", "-", "-n", space.namespace), urgent),
        (("simulate", "-f", "-", "-n", space.namespace, "-o", "json"), urgent),
        (("queues", "-n", space.namespace), ""),
    ):
        code, output, error = await makeway(tenant, *command, stdin=stdin)
        assert code == 0, (command, error)
        answers.append(output + error)
    for answer in answers:
        assert "secret-model" not in answer
        assert asking.other not in answer
    assert "is pending, and nothing that may go would make room for it" in answers[2]
    assert f"{space.namespace}/urgent (priority" in answers[4]
    assert f"would preempt on {space.node_name('n1')}: 1 pod would leave" in answers[4]
    assert HIDDEN in answers[4]
    assert "shared" in answers[6]

    listed = await asking.cluster.kubectl("api-resources", "--api-group=ask.makeway.dev", "-o", "name")
    assert sorted(listed.split()) == [
        f"{one}.ask.makeway.dev" for one in ("explanations", "queues", "simulations")
    ]
    code, output, _ = await makeway(asking.cluster.info.kubeconfig, "check", "-o", "json")
    found = {one["name"]: one["state"] for one in json.loads(output)["results"]}
    assert found["tenants' questions"] == "ok"

    granted = grants(asking.installed.release.manifests, "makeway-apiserver")
    left = unused(granted, asking.installed.events("makeway-apiserver"))
    assert {one for one in left if "podgroups" not in one} == set()
    assert denied(asking.installed.events()) == []


async def test_a_user_asks_only_about_what_they_may_read(asking: Asking) -> None:
    space = asking.space
    tenant, stranger = await asking.user("tenant", role="view"), await asking.user("stranger")

    async def answered() -> bool:
        code, _, error = await makeway(tenant, "why", f"{space.namespace}/mine")
        if code:
            raise NotYet(error)
        return True

    await until("the tenant is answered", answered, seconds=60, every=1.0)
    for user, command, stdin in (
        (tenant, ("why", f"{asking.other}/secret-model"), ""),
        (tenant, ("simulate", "-f", "-", "-n", asking.other), pod("urgent")),
        (stranger, ("why", f"{space.namespace}/mine"), ""),
        (stranger, ("queues", "-n", space.namespace), ""),
    ):
        code, output, error = await makeway(user, *command, stdin=stdin)
        assert (code, output) == (3, ""), (command, error)
        assert "no permission" in error
    code, _, error = await makeway(
        tenant, "simulate", "-f", "-", "-n", space.namespace, stdin=pod("x", asking.other)
    )
    assert code == 3
    assert "a manifest is of namespace" in error
    near = json.loads(pod("beside"))
    term = {"topologyKey": "kubernetes.io/hostname", "namespaces": [asking.other]}
    near["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    code, _, error = await makeway(
        tenant, "simulate", "-f", "-", "-n", space.namespace, stdin=json.dumps(near)
    )
    assert code == 3
    assert "affinity names pods of other namespaces" in error
    code, _, error = await makeway(tenant, "why", "ord-0")
    assert code == 3
    assert "for administrators" in error

    # A right to ask without one to read pods is none: the review says no.
    rules = [{"apiGroups": ["ask.makeway.dev"], "resources": ["*"], "verbs": ["*"]}]
    await asking.cluster.kubectl(
        "apply",
        "-f",
        "-",
        stdin=json.dumps(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "asks-alone"},
                "rules": rules,
            }
        ),
    )
    asks = await asking.user("asks", role="asks-alone")

    async def judged() -> str:
        _, _, error = await makeway(asks, "why", f"{space.namespace}/mine")
        if "may not get pods" not in error:
            raise NotYet(error)
        return error

    await until("the review is asked", judged)

    # While it is down, the tenant reads what does not answer, and not that it has no right.
    asking.server.stop()

    async def down() -> bool:
        code, _, error = await makeway(tenant, "why", f"{space.namespace}/mine")
        if "ask.makeway.dev, which answers tenants, does not answer now" not in error:
            raise NotYet(error)
        return code == 3

    await until("the tenant is told", down, seconds=60, every=1.0)


async def test_a_name_in_a_header_counts_from_the_front_proxy_alone(asking: Asking) -> None:
    pki = asking.cluster.info.directory / "pki"
    url = f"https://localhost:{asking.port}{ROOT}/namespaces/{asking.space.namespace}/explanations/mine"
    headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}

    async def ask(certificate: str) -> int:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(pki / f"{certificate}.pem", pki / f"{certificate}.key")
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=context) as answer,
        ):
            return answer.status

    with pytest.raises(aiohttp.ClientError):
        await ask("")
    # Of the same authority, and of the highest rights, but not the front proxy.
    assert await ask("makeway-dev-admin") == 401
    assert await ask("front-proxy-client") == 200
