"""docs/kind.md: its images are those that make builds, and its chart and manifests are whole."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from chart.conftest import Run
from chart.kubernetes_schemas import LOCATION, write_schemas
from makeway.dev.binaries import KUBERNETES_VERSION
from makeway.dev.paths import CHECKOUT

PAGE = (CHECKOUT / "docs" / "kind.md").read_text()


def command(name: str) -> list[str]:
    """The words of the page's first command that begins so."""
    (text,) = re.findall(rf"^{name} (?:.*\\\n)*.*$", PAGE, re.MULTILINE)[:1]
    return shlex.split(text.replace("\\\n", " "))


@pytest.mark.parametrize(("target", "more"), [("image", []), ("images", ["makeway-scheduler:dev"])])
def test_it_loads_the_images_that_make_builds(target: str, more: list[str]) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target, "ENGINE=engine"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = command("kind load docker-image")[3:-2]
    assert re.findall(r"engine build -t (\S+)", done.stdout) == [*loaded, *more]
    assert all(f"`{name}`" in PAGE for name in more)


@pytest.mark.parametrize(
    ("more", "images"),
    [
        ([], {"makeway:dev"}),
        (re.findall(r"`(--set bridge=plugin)`", PAGE), {"makeway:dev", "makeway-scheduler:dev"}),
    ],
    ids=["as it is", "with the plugin"],
)
def test_its_installation_takes_these_images_and_nats(run: Run, more: list[str], images: set[str]) -> None:
    install = [word for word in command("helm install") if word not in ("--create-namespace", "--wait")]
    values = [*install[2:], *" ".join(more).split(), f"--kube-version={KUBERNETES_VERSION}"]

    rendered = yaml.safe_load_all(run("helm", "template", *values, cwd=CHECKOUT))

    pods = [one["spec"]["template"]["spec"] for one in rendered if "template" in (one.get("spec") or {})]
    found = {container["image"] for pod in pods for container in pod["containers"]}
    assert {image for image in found if "/nats:" not in image} == images


def test_its_manifests_keep_to_kubernetes_own_schemas(run: Run, tmp_path: Path) -> None:
    manifests = re.findall(r"<<'YAML'\n(.*?)^YAML$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(manifests) == 2
    objects = [one for text in manifests for one in yaml.safe_load_all(text)]

    write_schemas(tmp_path, [(one["apiVersion"], one["kind"]) for one in objects])
    run(
        "kubeconform", "-strict", f"-schema-location={tmp_path}/{LOCATION}", stdin=yaml.safe_dump_all(objects)
    )
