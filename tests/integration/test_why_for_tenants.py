"""`makeway why` for a user who sees one namespace: it says by which rule, and names nothing of another."""

import asyncio
from pathlib import Path

from typer.testing import CliRunner

from integration.asking import until_said
from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.preempting import run_victims, sized
from integration.space import Space, another_namespace
from makeway.cli.main import app
from makeway.cli.text import HIDDEN
from makeway.dev.kubeconfig import write_with_token


async def tenant(space: Space, directory: Path) -> Path:
    """Return the kubeconfig of a user who may read the pods of the space's namespace."""
    access = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space.namespace}"
    await space.post(
        f"/api/v1/namespaces/{space.namespace}/serviceaccounts", {"metadata": {"name": "tenant"}}
    )
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    await space.post(f"{access}/roles", {"metadata": {"name": "reads-pods"}, "rules": rules})
    binding = {
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads-pods"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": space.namespace}],
    }
    await space.post(f"{access}/rolebindings", binding)
    info, api = space.cluster.info, space.cluster.owned.api
    token = await asyncio.to_thread(api.token, space.namespace, "tenant", 600)
    return write_with_token(
        directory / "tenant.yaml", info.server, info.directory / "pki" / "ca.pem", token, "tenant"
    )


async def test_a_tenant_sees_why_its_pod_went_and_no_name_of_another_namespace(
    cluster: RunningCluster, space: Space, tmp_path: Path
) -> None:
    space.judged = False  # the checker looks at one namespace
    kubeconfig = await tenant(space, tmp_path)
    await space.add_nodes(make_node("n1").cpu("500m"))
    await run_victims(space, sized("mine", "low", 500).on("n1"))
    async with another_namespace(space) as other:
        manifest = space.manifest(sized("urgent", "high", 500))
        manifest["metadata"]["namespace"] = other
        await space.post(f"/api/v1/namespaces/{other}/pods", manifest)
        await space.until_gone("mine")
        what = f"{space.namespace}/mine"

        await until_said(cluster, f"{other}/urgent", "why", what)
        for form in ("text", "json"):
            arguments = ["why", what, "-o", form, "--kubeconfig", str(kubeconfig)]
            arguments += ["--nats-url", cluster.info.nats_url]
            result = await asyncio.to_thread(CliRunner().invoke, app, arguments)

            assert result.exit_code == 0, result.stderr
            assert "lower-priority" in result.stdout
            assert HIDDEN in result.stdout
            assert "urgent" not in result.stdout
            assert other not in result.stdout
