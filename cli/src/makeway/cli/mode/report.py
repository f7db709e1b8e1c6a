"""What `makeway mode` shows: what is in force, by what, and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from makeway.cli.connect.configmaps import StoredMap
from makeway.cli.mode.components import Confirmation
from makeway.core.config.document import ConfigError
from makeway.core.policy.brake import CONFIGMAP as BRAKE
from makeway.core.policy.brake import Brake
from makeway.core.policy.document import KEY, Policy, parse_policy
from makeway.core.policy.mode import Mode
from makeway.runtime.config import revision_of
from makeway.runtime.config_kinds import POLICY

By = Literal["brake", "policy", "default"]

DELETED: Final = "its ConfigMap was deleted, and whoever starts waits: apply it again, or an empty policy"


@dataclass(frozen=True)
class StoredState:
    """Brake and policy as they are stored.

    `policy`: None where it is refused, for `problems`; or where we may not read it, which `unread` says.
    """

    brake: Brake
    policy: Policy | None
    revision: str
    since: str
    problems: tuple[str, ...] = ()
    unread: str = ""

    @classmethod
    def of(cls, brake: Brake, stored: StoredMap) -> StoredState:
        """Read what is stored; a policy that would be refused is a part of the answer, no error."""
        if not stored.version:
            return cls(brake, Policy(), "", "")
        text = stored.data.get(KEY)
        if text is None:
            keys = ", ".join(sorted(stored.data)) or "none"
            return cls(brake, None, "", stored.since, (f"it has no key {KEY}; it has {keys}",))
        revision = revision_of(text)
        try:
            policy = parse_policy(text, f"{POLICY.configmap}/{KEY}")
        except ConfigError as error:
            problems = tuple(problem.describe(error.source) for problem in error.problems)
            return cls(brake, None, revision, stored.since, problems)
        return cls(brake, policy, revision, stored.since)

    def heard(self, revisions: Iterable[str]) -> StoredState:
        """Return it as it is where components go by these policies: one that is gone stays effective."""
        stored = self.policy is None or self.revision
        return self if stored or not any(revisions) else replace(self, policy=None, problems=(DELETED,))

    def mode_for(self, namespace: str) -> Mode | None:
        """Return the mode that brake and policy come to; None where the policy is refused."""
        if self.brake.holds(namespace):
            return "off"
        return None if self.policy is None else self.policy.mode_for(namespace)

    def awaited_revision(self, namespace: str) -> str | None:
        """Return the revision that components have to go by; None where the brake holds, or none can be."""
        return None if self.brake.holds(namespace) or self.policy is None else self.revision


class SetBrake(msgspec.Struct, frozen=True, rename="camel"):
    """The brake, where it is set.

    Attributes:
        scope: everywhere, or names of namespaces.
        since: when it was set, as whoever set it wrote.
        by: by whom.
        reason: why.
        trouble: why it counts as set everywhere though that is not what it says.
    """

    scope: str
    since: str
    by: str
    reason: str
    trouble: str


class ModeReport(msgspec.Struct, frozen=True, rename="camel"):
    """What is in force, by what, and who goes by it.

    Attributes:
        mode: of the cluster, or of the namespace asked about, as brake and policy come to; with a policy that
            is refused what the components go by, and null where none answers.
        by: brake, policy, or default where there is no policy. A component's argument may hold it to less.
        since: when the brake was set, or when the policy's ConfigMap was last written; empty where not known.
        namespace: the one asked about; empty for the cluster.
        brake: the brake; null where it is not set.
        policy_mode: what the policy says; null where it is refused.
        namespace_modes: every namespace that has a mode of its own in the policy.
        policy_revision: of the policy as it is stored; empty where there is none.
        policy_problems: why the policy as it is stored is refused, or that it was deleted; the last good
            one is in force then.
        policy_unread: why the policy could not be read; empty where it could.
        changed: whether this command has changed anything.
        components: all that answered, and those known of that did not.
    """

    mode: Mode | None
    by: By
    since: str
    namespace: str
    brake: SetBrake | None
    policy_mode: Mode | None
    namespace_modes: dict[str, Mode]
    policy_revision: str
    policy_problems: tuple[str, ...]
    policy_unread: str
    changed: bool
    components: list[Confirmation]


def report_of(
    said: StoredState, *, namespace: str, changed: bool, components: list[Confirmation]
) -> ModeReport:
    """Put together what is shown."""
    said = said.heard(one.policy_revision for one in components)
    brake = said.brake
    braked = brake.holds(namespace)
    mode = said.mode_for(namespace)
    if mode is None:
        # The last good policy is in force, and only the components still know it.
        heard = [one.mode for one in components if one.mode is not None and one.component != "scheduler"]
        mode = heard[0] if heard else None
    by: By = "policy" if said.revision or said.problems or said.unread else "default"
    return ModeReport(
        mode=mode,
        by="brake" if braked else by,
        since=brake.since if braked else said.since,
        namespace=namespace,
        brake=SetBrake(brake.scope(), brake.since, brake.by, brake.reason, brake.trouble)
        if brake.engaged
        else None,
        policy_mode=said.policy.mode_for(namespace) if said.policy is not None else None,
        namespace_modes=dict(said.policy.namespace_modes) if said.policy is not None else {},
        policy_revision=said.revision,
        policy_problems=said.problems,
        policy_unread=said.unread,
        changed=changed,
        components=components,
    )


def lines(report: ModeReport, makeway_namespace: str) -> Iterator[str]:
    """Say it for a person: the mode in force first, then brake and policy."""
    for_whom = f" for namespace {report.namespace}" if report.namespace else ""
    since = f" since {report.since}" if report.since else ""
    kept = not report.components or any(one.policy_revision for one in report.components)
    last = "by the last good policy" if kept else "by default"
    by = {
        "brake": "by the brake",
        "policy": last if report.policy_problems else "by the policy",
        "default": "by default",
    }[report.by]
    told = since if report.by == "brake" or not report.policy_problems else ""
    yield f"mode: {report.mode or 'not known'}{for_whom}, {by}{told}"
    if (brake := report.brake) is not None:
        parts = [f"brake: set {'everywhere' if brake.scope == 'everywhere' else f'for {brake.scope}'}"]
        parts += [f"since {brake.since}"] if brake.since else []
        parts += [f"by {brake.by}"] if brake.by else []
        reason = f": {brake.reason}" if brake.reason else ""
        yield f"{' '.join(parts)}{reason}  (ConfigMap {makeway_namespace}/{BRAKE})"
        if brake.trouble:
            yield f"  {brake.trouble}"
    where = f"ConfigMap {makeway_namespace}/{POLICY.configmap}"
    if report.policy_unread:
        yield f"policy: not known: {report.policy_unread}  ({where})"
    elif report.policy_problems:
        what = "gone" if report.policy_problems == (DELETED,) else "refused"
        stays = "the last good one stays effective" if kept else "and none was accepted before"
        yield f"policy: {what}, {stays}  ({where})"
        yield from (f"  {problem}" for problem in report.policy_problems)
    elif report.policy_revision:
        others = sorted(item for item in report.namespace_modes.items() if item[0] != report.namespace)
        own = "".join(f"; namespace {name}: {mode}" for name, mode in others)
        yield f"policy: {report.policy_mode}{for_whom}{own}  ({where}, {report.policy_revision})"
    else:
        yield f"policy: none, which is enforce  (no {where})"
