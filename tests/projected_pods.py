"""The golden pods of what is sent of a preemptor, and how they are compared."""

from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from makeway.core.k8s.objects import Pod
from makeway.core.policy.facts import annotations_read

_PODS: Final = Path(__file__).parents[1] / "bus/testdata/pods"
FULL: Final = (_PODS / "full.json").read_bytes()
"""A v1.Pod with every field that anything reads, and some that nothing reads."""
PROJECTED: Final = (_PODS / "projected.json").read_bytes()
"""What the scheduler's plugin sends of it."""


def read(data: bytes) -> Pod:
    """Decode a pod as far as anything is read of it: claims among its volumes, and a few annotations."""
    pod = msgspec.json.decode(data, type=Pod)
    claims = tuple(volume for volume in pod.spec.volumes or () if volume.persistent_volume_claim)
    metadata = replace(pod.metadata, annotations=dict(annotations_read(pod.metadata)))
    return replace(pod, metadata=metadata, spec=replace(pod.spec, volumes=claims))
