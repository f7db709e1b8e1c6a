"""Leader election by a Lease, with client-go's rules.

Whoever has not renewed it for a while loses it; whoever cannot renew it for a shorter while stops. Both are
shorter here than the usual 15 s and 10 s, so that more happens in the time of the faults.
"""

from collections.abc import Callable

from makeway.runtime.kube import ApiError, ApiUnavailable
from protocol.cluster import Cluster, ClusterApi, Lease
from protocol.loop import Process
from protocol.world import World

DURATION_SECONDS = 6.0
RENEW_WITHIN_SECONDS = 4.0
RETRY_SECONDS = 1.0


class Leading:
    """One candidate for one Lease."""

    def __init__(self, world: World, cluster: Cluster, process: Process, name: str) -> None:
        self._world, self._cluster, self._process, self._name = world, cluster, process, name
        self._api = ClusterApi(world, cluster, process)
        self.leads = False
        self._seen: tuple[int, float] = (-1, 0.0)

    async def run(self, lost: Callable[[], None], changed: Callable[[], None] = lambda: None) -> None:
        """Try for the Lease for ever; `lost` is called once it is lost."""
        world = self._world
        while True:
            asked = world.loop.virtual
            try:
                held = await self._api.do(self._try)
            except (ApiError, ApiUnavailable):
                held = None
            if held:
                renewed = asked
                if not self.leads:
                    self.leads = True
                    world.note(self._process.identity, f"leads {self._name}")
                    changed()
            elif self.leads and (held is False or world.loop.virtual - renewed > RENEW_WITHIN_SECONDS):
                self.leads = False
                world.note(self._process.identity, f"leads {self._name} no more")
                changed()
                lost()
            await self._process.sleep(RETRY_SECONDS)

    def _try(self) -> bool:
        """At the server: get or renew it. A candidate waits until the record stayed as it is for so long."""
        now, me = self._world.loop.virtual, self._process.identity
        lease = self._cluster.leases.setdefault(self._name, Lease())
        if lease.version != self._seen[0]:
            self._seen = (lease.version, now)
        if lease.holder not in ("", me) and now - self._seen[1] < DURATION_SECONDS:
            return False
        if lease.holder != me:
            lease.transitions += 1 if lease.acquired else 0
            lease.holder, lease.acquired = me, self._process.now()
            self._cluster.lease_taken(self._name, lease)
        lease.version += 1
        return True
