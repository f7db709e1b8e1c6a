"""JSON Schemas of Kubernetes' kinds, as kubeconform reads them, from Kubernetes' own OpenAPI document."""

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from makeway.dev.binaries import GO_ENVIRONMENT, KUBERNETES
from makeway.dev.paths import CONTROL_PLANE_MODULE

Schema = dict[str, Any]

LOCATION = "{{.ResourceKind}}-{{.ResourceAPIVersion}}.json"
_GVK = "x-kubernetes-group-version-kind"
_REFERENCE = "#/definitions/"


def write_schemas(directory: Path, kinds: Iterable[tuple[str, str]]) -> None:
    """Write a strict schema that stands alone for each kind, given as (apiVersion, kind)."""
    definitions = _openapi()["definitions"]
    by_kind = {
        (f"{gvk['group']}/{gvk['version']}".strip("/"), gvk["kind"]): schema
        for schema in definitions.values()
        for gvk in schema.get(_GVK, ())
    }
    for version, kind in kinds:
        schema = _strict(by_kind[version, kind], definitions)
        name = f"{kind.lower()}-{version.rpartition('/')[2]}.json"
        (directory / name).write_text(json.dumps(schema))


def _openapi() -> Mapping[str, Any]:
    """The document that Kubernetes' own module ships, of the version the control plane is built from."""
    modfile = [f"-modfile={KUBERNETES.modfile}"] if KUBERNETES.modfile else []
    command = ["go", "mod", "download", *modfile, "-json", "k8s.io/kubernetes"]
    done = subprocess.run(
        command,
        cwd=CONTROL_PLANE_MODULE,
        env={**os.environ, **GO_ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    path = Path(json.loads(done.stdout)["Dir"]) / "api" / "openapi-spec" / "swagger.json"
    document: Mapping[str, Any] = json.loads(path.read_text())
    return document


def _strict(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """With every reference replaced by what it names, and no field that Kubernetes does not know."""
    if isinstance(schema, list):
        return [_strict(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if reference := schema.get("$ref"):
        return _strict(definitions[reference.removeprefix(_REFERENCE)], definitions)
    if schema.get("format") == "int-or-string" or _is_quantity(schema):
        return {"type": ["string", "integer", "number"]}
    resolved: Schema = {key: _strict(value, definitions) for key, value in schema.items()}
    if "properties" in resolved and isinstance(schema["properties"], dict):
        resolved.setdefault("additionalProperties", False)
    return resolved


def _is_quantity(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" and "Quantity is a fixed-point" in str(schema.get("description"))
