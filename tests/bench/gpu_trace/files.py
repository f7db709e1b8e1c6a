"""The files of the trace: downloaded once at a pinned commit, or taken from a directory, and always checked.

They are not part of this repository: their publisher offers them for research and study, and names no licence
under which they may be handed on.
"""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

REPOSITORY: Final = "alibaba/clusterdata"
COMMIT: Final = "50a91c7c74abe3b658188dc78ac1dd302970d40c"
FOLDER: Final = "cluster-trace-gpu-v2023/csv"
NODES: Final = "openb_node_list_gpu_node.csv"
PODS: Final = "openb_pod_list_default.csv"
SIZES: Final = "openb_pod_list_multigpu50.csv"
"""Sizes of pods, half of whose GPUs are asked for by pods with several."""

SHA256: Final = {
    NODES: "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",
    PODS: "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
    SIZES: "206f2f5959db30ecb7c44e7f13197c8ec50b7a35558ad3777cc3662ef0fe5373",
}
_TIMEOUT_SECONDS: Final = 60.0


class TraceFileError(Exception):
    """A file of the trace is not there or is another one. The text says what to do."""


def trace_file(directory: Path, name: str, *, download: bool) -> list[str]:
    """Return the lines of one of the lists; download it where the directory lacks it.

    Raises TraceFileError.
    """
    return _checked(directory / name, download=download).splitlines()


def _checked(path: Path, *, download: bool) -> str:
    if not path.exists():
        if not download:
            raise TraceFileError(f"{path} is not there. {_advice(path)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_verified(path, _downloaded(path)))
    return _verified(path, path.read_bytes()).decode()


def _verified(path: Path, data: bytes) -> bytes:
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256[path.name]:
        raise TraceFileError(f"{path} has sha256 {found}, wanted {SHA256[path.name]}. {_advice(path)}")
    return data


def _downloaded(path: Path) -> bytes:
    url = f"https://raw.githubusercontent.com/{REPOSITORY}/{COMMIT}/{FOLDER}/{path.name}"
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:
            data: bytes = reply.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise TraceFileError(f"{url} cannot be downloaded: {error}. {_advice(path)}") from error
    return data


def _advice(path: Path) -> str:
    return (
        f"Put {FOLDER}/{path.name} of github.com/{REPOSITORY} at {COMMIT[:12]} into {path.parent}, "
        'or into a directory of your own and say ARGS="--trace DIRECTORY"'
    )
