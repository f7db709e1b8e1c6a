"""What the token of the Secrets' keeper cannot do, and what Helm leaves of what the keeper has made."""

import asyncio
import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from integration.charting import NAMESPACE, render
from integration.cluster import RunningCluster
from integration.conftest import Install
from integration.waiting import IN_FORCE_SECONDS, NotYet, until, until_seen
from makeway.bus.signing.keys import SigningKind
from makeway.cli.check.cluster import secrets_results
from makeway.cli.check.place import CheckedCluster
from makeway.cli.connect.form import Form
from makeway.cli.keys.keeping import SecretsKeeper
from makeway.cli.keys.making import AUTHORITY, PASSWORDS, SecretContents, WantedSecrets, contents, login
from makeway.cli.keys.stores import LABELS, UNREADABLE, KeyStore
from makeway.dev.binaries import HELM
from makeway.dev.build import ensure
from makeway.dev.errors import DevError
from makeway.dev.paths import CHART
from makeway.dev.progress import SilentProgress
from makeway.runtime.key_ring import CONFIGMAP

pytestmark = pytest.mark.wide

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

    await until_seen(
        "the others are made",
        lambda: installed.cluster.kubectl("get", "secret", "-n", NAMESPACE, "-o", "name"),
        lambda names: "makeway-signing-planner" in names and "makeway-nats-authority" in names,
    )
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
        if done.returncode != 0:
            raise DevError(done.stderr)
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

    await helm("install", "makeway", str(CHART), "--create-namespace", "--take-ownership")
    patch = json.dumps({"data": {"order.pem": "as the keeper made it"}})
    await chart_control_plane.kubectl("patch", "configmap", "-n", NAMESPACE, "makeway-keys", "-p", patch)
    await helm("upgrade", "makeway", str(CHART), "--set=log.level=debug")
    await helm("upgrade", "makeway", str(CHART), "--set=log.level=warning")

    await helm("rollback", "makeway", revision)

    assert await keys() == {"order.pem": "as the keeper made it"}


async def test_an_upgrade_from_a_chart_that_rendered_logins_and_keys_keeps_them(
    chart_control_plane: RunningCluster, helm: Any, tmp_path: Path
) -> None:
    wanted = WantedSecrets(NAMESPACE, ("planner", "viewer"), certificate_days=90, signs=tuple(SigningKind))
    made = contents(wanted, SecretContents(), datetime.now(UTC))
    rendered = {name: held for name, held in made.secrets.items() if name not in (AUTHORITY, PASSWORDS)}
    older = older_chart(tmp_path / "older", rendered, made.public)

    async def stored() -> dict[str, dict[str, str]]:
        get = ("get", "secrets,configmaps", "-n", NAMESPACE, "-o", "json")
        listed = json.loads(await chart_control_plane.kubectl(*get))["items"]
        found = {one["metadata"]["name"]: one for one in listed}
        secrets = {
            name: {key: b64decode(text).decode() for key, text in found[name]["data"].items()}
            for name in rendered
        }
        return {**secrets, CONFIGMAP: found[CONFIGMAP]["data"]}

    form = "--set=bridge=external"  # whose evictor signs, too
    await helm("install", "makeway", str(older), form, "--create-namespace", "--take-ownership")
    before = await stored()
    assert before == {**rendered, CONFIGMAP: made.public}
    for level in ("info", "debug", "warning"):  # the second lets go what the first had rendered, if it can
        notes = await helm("upgrade", "makeway", str(CHART), form, f"--set=log.level={level}")
        assert await stored() == before
        async with chart_control_plane.connect() as api:
            kept = await SecretsKeeper(KeyStore(api, wanted.namespace), wanted).ensure(datetime.now(UTC))
        assert await stored() == before
        assert kept.secrets[PASSWORDS] == made.secrets[PASSWORDS]

    assert "Its Secrets are made in the cluster, and stay when it is uninstalled" in notes
    with pytest.raises(DevError, match="exists and cannot be imported into the current release"):
        await helm("install", "second", str(CHART))
    assert await stored() == before

    await helm("uninstall", "makeway", "--no-hooks")

    left = await chart_control_plane.kubectl("get", "secrets", "-n", NAMESPACE, "-o", "name")
    assert {f"secret/{name}" for name in rendered} <= set(left.split())

    await chart_control_plane.kubectl("delete", "secret", "-n", NAMESPACE, login("planner"))
    async with chart_control_plane.connect() as api:
        await SecretsKeeper(KeyStore(api, wanted.namespace), wanted).ensure(datetime.now(UTC))
        (result,) = await secrets_results(CheckedCluster(api, NAMESPACE, Form(), replaced=False))
    again = (await stored())[login("planner")]
    assert again["password"] == before[login("planner")]["password"]
    assert again["tls.crt"] != before[login("planner")]["tls.crt"]  # its private key is lost
    assert result.state == "ok"
    assert f"{login('planner')} (" in result.detail.partition("lost and made again: ")[2]


def older_chart(directory: Path, rendered: Mapping[str, Any], public: Mapping[str, str]) -> Path:
    """Copy the chart, and have it render Secrets and public keys as before they were made in the cluster."""
    shutil.copytree(CHART, directory)
    labels = {**LABELS, "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/component": "nats"}
    manifests = [
        secret(name, stringData=held, metadata={"labels": labels}) for name, held in rendered.items()
    ]
    (directory / "templates/kept-secrets.yaml").write_text(yaml.safe_dump_all(manifests))
    (directory / "public.json").write_text(json.dumps({"metadata": {}, "data": public}))
    streams = directory / "templates/streams.yaml"
    before = streams.read_text()
    lookup = 'lookup "v1" "ConfigMap" .Release.Namespace "makeway-keys"'
    streams.write_text(before.replace(lookup, '.Files.Get "public.json" | fromJson'))
    assert streams.read_text() != before
    return directory
