"""The manifests of examples/policies keep to Kubernetes' own schemas."""

from pathlib import Path

import pytest
import yaml

from chart.conftest import Run
from chart.kubernetes_schemas import LOCATION, write_schemas
from makeway.dev.paths import CHECKOUT

EXAMPLES = sorted((CHECKOUT / "examples" / "policies").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_manifest_keeps_to_kubernetes_own_schemas(run: Run, tmp_path: Path, path: Path) -> None:
    found = list(yaml.safe_load_all(path.read_text()))
    assert found

    write_schemas(tmp_path, {(one["apiVersion"], one["kind"]) for one in found})
    run("kubeconform", "-strict", f"-schema-location={tmp_path}/{LOCATION}", path)
