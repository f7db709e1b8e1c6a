"""A policy on an API server that has nothing of makeway's yet."""

import asyncio
from pathlib import Path
from typing import Any

import yaml

from makeway.runtime.config_kinds import POLICY
from makeway.runtime.kube import Api

_NAMESPACE = "makeway-system"


def store_policy(kubeconfig: Path, policy: dict[str, Any]) -> None:
    """Create makeway's namespace, and the ConfigMap of the policy in it."""
    asyncio.run(_store(kubeconfig, yaml.safe_dump(policy)))


async def _store(kubeconfig: Path, text: str) -> None:
    api = await Api.connect(kubeconfig=str(kubeconfig), user_agent="makeway-tests")
    try:
        await api.call(api.core.create_namespace, {"metadata": {"name": _NAMESPACE}})
        configmap = {"metadata": {"name": POLICY.configmap}, "data": {POLICY.key: text}}
        await api.call(api.core.create_namespaced_config_map, _NAMESPACE, configmap)
    finally:
        await api.close()
