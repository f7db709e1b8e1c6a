"""How far this evictor may go at this moment: the brake first, then the most restrictive of three.

Its own argument; the policy, which it reads from the API server itself; and the control state, which the
leading planner says. So the loss of any one of them lifts nothing, and `off` gets here by two ways. Of
each the last good one holds. The brake is none of them: it is read anew before each eviction.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from makeway.bus.control import ControlState
from makeway.bus.messages import EvictionOrder
from makeway.core.policy.brake import RELEASED, Brake
from makeway.core.policy.document import Policy, in_namespaces
from makeway.core.policy.mode import Mode, more_restrictive
from makeway.core.policy.rates import Rates, rates_of
from makeway.evictor.judge.verdicts import Refused
from makeway.evictor.limits.pod_count import PodCount, believed


class ModeGuard:
    """One evictor's. Nothing of it awaits.

    `brake`: as it was read last. `breaker`: what it has against an order. `own_namespace`: makeway's.
    `seconds`: a clock that never goes back.
    """

    def __init__(
        self,
        own_mode: Mode,
        policy: Callable[[], Policy] = Policy,
        brake: Callable[[], Brake] = lambda: RELEASED,
        breaker: Callable[[EvictionOrder], Refused | None] = lambda order: None,
        *,
        own_namespace: str = "",
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._pods: PodCount | None = None
        self.own_mode: Mode = own_mode
        self.own_namespace = own_namespace
        self._policy = policy
        self._brake = brake
        self._breaker = breaker
        self.control: ControlState | None = None
        """The control state in force; None before the first."""
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have a function called after every change; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def put_control(self, control: ControlState) -> None:
        """Put a control state of this cluster in force."""
        self.control = control
        self.changed()

    def changed(self) -> None:
        """Notify all waiters: the policy, the control state or the brake has changed."""
        for listener in tuple(self._listeners):
            listener()

    def mode(self, namespace: str) -> Mode:
        """Return the mode that holds for a namespace."""
        if self._brake().holds(namespace):
            return "off"
        return more_restrictive(
            self.own_mode, self._policy().mode_for(namespace), self._control_mode(namespace)
        )

    def modes(self) -> tuple[Mode, dict[str, Mode]]:
        """Return the mode that holds everywhere, and for which namespaces another is said."""
        told = self.control.namespace_modes if self.control is not None else {}
        # No namespace has the empty name, so it has the mode of all that nothing is said of.
        named = {*self._policy().modes(), *told, *self._brake().namespaces}
        return self.mode(""), {name: self.mode(name) for name in sorted(named)}

    @property
    def brake(self) -> Brake:
        """The brake as it was read last."""
        return self._brake()

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy()

    def has_hard_budgets(self, namespace: str) -> bool:
        """Report whether the disruption budgets of a namespace may not be violated, by policy or planner."""
        told = self.control.hard_budget_namespaces if self.control is not None else ()
        return self._policy().has_hard_budgets(namespace) or in_namespaces(namespace, told)

    def victims_per_order(self) -> int:
        """Return how many victims an order may have."""
        limits = self.control.limits if self.control is not None else None
        own, told = self._policy().limits.victims_per_order, limits.victims_per_order if limits else None
        return own if told is None else min(own, told)

    def rates(self, *, verified: bool = False) -> Rates:
        """Return how many pods may be evicted in a while: by the policy, and by how many pods there are.

        `verified`: for orders that the API server bears out, which only caps that the policy sets hold.
        """
        if self.control is not None:
            self._pods = believed(self._pods, self.control.pods, self._seconds())
        pods = self._pods.pods if self._pods is not None else 0
        return rates_of(self._policy().limits, pods, only_set=verified)

    def refusal_of(self, order: EvictionOrder) -> Refused | None:
        """Return why no effect of an order may begin now; None where nothing is against it.

        By the namespace of the preemptor, pod or group; an order without one, by the namespaces of all its
        victims.
        """
        preemptor = order.room_for
        concerned = {v.namespace for v in order.victims} if preemptor is None else {preemptor.namespace}
        brake = self._brake()
        for namespace in sorted(concerned):
            if brake.holds(namespace):
                return Refused("mode-off", f"the mode for namespace {namespace} is off: {brake.describe()}")
            match self.mode(namespace):
                case "off":
                    return Refused("mode-off", f"the mode for namespace {namespace} is off")
                case "observe":
                    return Refused(
                        "mode-observe", f"the mode for namespace {namespace} is observe: nothing is evicted"
                    )
        return self._breaker(order)

    def too_large(self, order: EvictionOrder) -> Refused | None:
        """Return that an order has more victims than allowed, or counts on too many other orders.

        Asked once: what has begun is not cut off.
        """
        limit = self.victims_per_order()
        if len(order.victims) > limit:
            return Refused(
                "too-many-victims", f"{len(order.victims)} victims, the policy allows {limit} in an order"
            )
        comes, most = {member.node for member in order.members}, self._policy().cross_node.most_victims
        beside = sum(one.closes is not None and one.node not in comes for one in order.victims)
        if beside > most:
            return Refused(
                "too-many-victims",
                f"{beside} victims on nodes that no member comes to, the policy allows {most} in an order",
            )
        awaited, most = len(order.counts_on), self._policy().limits.orders_awaited
        if awaited > most:
            return Refused(
                "too-many-awaited", f"it counts on {awaited} other orders, the policy allows {most}"
            )
        return None

    def _control_mode(self, namespace: str) -> Mode:
        if self.control is None:
            return "enforce"
        return self.control.namespace_modes.get(namespace, self.control.mode)
