"""The API of pod groups in the minor version of Kubernetes that is tested."""

from dataclasses import dataclass
from typing import Any, Final

import pytest

from makeway.dev.binaries import KUBERNETES


@dataclass(frozen=True)
class PodGroupForm:
    """`whole`, `single`: disruptionMode. `gates`: those without which groups take no effect."""

    version: str
    whole: Any
    single: Any
    gates: tuple[str, ...]


_FORMS: Final = {
    "1.37": PodGroupForm("v1beta1", {"all": {}}, {"single": {}}, ("GenericWorkload",)),
    "1.36": PodGroupForm(
        "v1alpha2", "PodGroup", "Pod", ("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption")
    ),
}

FORM: Final = _FORMS.get(KUBERNETES.name)


def form() -> PodGroupForm:
    """Return that of the version under test; a test is skipped where makeway follows no groups."""
    if FORM is None:
        pytest.skip(f"makeway follows no pod groups of Kubernetes {KUBERNETES.name}")
    return FORM


def apiserver_arguments(*gates: str) -> tuple[str, ...]:
    """Return what makes the API server serve PodGroups. `gates`: besides those of the form."""
    chosen = dict.fromkeys((*form().gates, *gates))
    versions = [f"scheduling.k8s.io/{form().version}=true"]
    if "CompositePodGroup" in chosen:
        versions.append("scheduling.k8s.io/v1alpha3=true")
    return (
        f"--feature-gates={','.join(f'{gate}=true' for gate in chosen)}",
        f"--runtime-config={','.join(versions)}",
    )
