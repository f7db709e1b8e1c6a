"""The namespace that a kubeconfig's context names, as kubectl takes it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import yaml

from makeway.bus.reasons import reason_of
from makeway.runtime.kube import ConfigurationError

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_DEFAULT: Final = "default"


def context_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """Return the namespace of the context; else, in a pod, its own; else `default`.

    Of several files in $KUBECONFIG the first that says something wins, as in kubectl.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    source = str(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [
        path for part in source.split(os.pathsep) if part and (path := Path(part).expanduser()).is_file()
    ]
    documents = [_read(path) for path in files]
    current = context or next((name for one in documents if (name := one.get("current-context"))), "")
    for document in documents:
        for entry in document.get("contexts") or ():
            if entry.get("name") == current:
                return (entry.get("context") or {}).get("namespace") or _DEFAULT
    if not files and _SERVICE_ACCOUNT.is_file():
        return _SERVICE_ACCOUNT.read_text().strip() or _DEFAULT
    return _DEFAULT


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"kubeconfig {path}: {reason_of(error)}") from error
    return document if isinstance(document, dict) else {}
