"""Whether a KubeSchedulerConfiguration has MakeWay where it must be. Pure.

Plugins named under `postFilter` that also come by `multiPoint` run first, in the order given there. Source:
kube-scheduler's pkg/scheduler/framework/runtime/framework.go, expandMultiPointPlugins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from makeway.cli.check.result import CheckResult, State

NAME: Final = "scheduler profile"

_KIND: Final = "KubeSchedulerConfiguration"
_PLUGIN: Final = "MakeWay"
_DEFAULT: Final = "DefaultPreemption"
_CLAIMS: Final = "DynamicResources"
_QUEUES: Final = "MakeWayQueues"
_MULTI: Final = "enable MakeWay under multiPoint: its gates act outside postFilter"
_ORDER: Final = (
    "under postFilter.enabled write [DynamicResources, MakeWay, DefaultPreemption], or without the last"
)
_QUEUES_FIRST: Final = "write MakeWayQueues before MakeWay under multiPoint.enabled and postFilter.enabled"
_EVERYWHERE: Final = (
    "under multiPoint.disabled write [DefaultPreemption], and under multiPoint.enabled [MakeWay, "
    "DefaultPreemption], or without the last"
)


def configurations(data: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the scheduler configurations among a ConfigMap's keys."""
    for key, text in data.items():
        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError:
            continue
        if isinstance(document, dict) and document.get("kind") == _KIND:
            yield key, document


def judge(where: str, configuration: Mapping[str, Any]) -> list[CheckResult]:
    """Judge every profile of a configuration; one result a profile."""
    profiles = [profile for profile in configuration.get("profiles") or () if isinstance(profile, dict)]
    if not any(_named(profile) for profile in profiles):
        return [CheckResult(NAME, "wrong", f"{where}: no profile has MakeWay", _MULTI)]
    return [_profile(where, profile) for profile in profiles]


def _profile(where: str, profile: Mapping[str, Any]) -> CheckResult:
    about = f"{where}, profile {profile.get('schedulerName') or 'default-scheduler'}"
    multi, after = enabled(profile, "multiPoint"), enabled(profile, "postFilter")
    groups = enabled(profile, "podGroupPostFilter")
    off = set(_names(profile, "multiPoint", "disabled") + _names(profile, "postFilter", "disabled"))
    kept = not off & {_DEFAULT, "*"}
    troubles: tuple[tuple[bool, State, str, str], ...] = (
        (not _named(profile), "warning", "without MakeWay; its pods preempt as ever", _MULTI),
        (_PLUGIN not in multi, "wrong", "MakeWay is enabled in postFilter alone", _MULTI),
        (_PLUGIN not in after, "wrong", "MakeWay runs after DefaultPreemption, so never", _ORDER),
        (_is_before(_DEFAULT, after), "wrong", "DefaultPreemption is before MakeWay", _ORDER),
        (
            _CLAIMS not in off and not _is_before(_CLAIMS, after),
            "warning",
            "MakeWay is before DynamicResources, which frees idle claims",
            _ORDER,
        ),
        (
            _QUEUES in multi and not _is_before(_QUEUES, after),
            "warning",
            "MakeWayQueues is after MakeWay, and ends nothing for pods whose full queue no eviction helps",
            _QUEUES_FIRST,
        ),
        (
            _DEFAULT in after and not kept and _DEFAULT not in multi,
            "wrong",
            "DefaultPreemption is enabled in postFilter alone, and does not hold pods whose victims leave",
            _EVERYWHERE,
        ),
        (
            (kept or _is_before(_DEFAULT, multi)) and (_PLUGIN not in groups or _is_before(_DEFAULT, groups)),
            "warning",
            "DefaultPreemption is before MakeWay where room is made for pod groups",
            _EVERYWHERE,
        ),
    )
    for holds, state, trouble, remedy in troubles:
        if holds:
            return CheckResult(NAME, state, f"{about}: {trouble}", remedy)
    unplanned = (
        "without a plan kube-scheduler's preemption acts where nothing restricts preemption"
        if kept or _DEFAULT in multi
        else "without a plan nothing is evicted"
    )
    return CheckResult(NAME, "ok", f"{about}: {' → '.join(after)}; {unplanned}")


def _is_before(name: str, names: list[str]) -> bool:
    """Report whether a plugin is named before MakeWay."""
    return _PLUGIN in names and name in names[: names.index(_PLUGIN)]


def _named(profile: Mapping[str, Any]) -> bool:
    return _PLUGIN in enabled(profile, "multiPoint") or _PLUGIN in enabled(profile, "postFilter")


def enabled(profile: Mapping[str, Any], point: str) -> list[str]:
    """Return the plugins that a profile enables at an extension point, in order."""
    return _names(profile, point, "enabled")


def _names(profile: Mapping[str, Any], point: str, which: str) -> list[str]:
    entries = ((profile.get("plugins") or {}).get(point) or {}).get(which) or ()
    return [str(entry.get("name")) for entry in entries if isinstance(entry, dict)]
