"""What a cluster consists of and how its scheduler behaves. Defaults are what the demo runs."""

from dataclasses import asdict, dataclass
from typing import Any

NATS = "nats"
SCHEDULER = "scheduler"
KWOK = "kwok"
PLANNER = "planner"
EVICTOR = "evictor"
NOMINATOR = "nominator"
SHADOW = "shadow"
STREAMS = "streams"
USUAL = (NATS, SCHEDULER, KWOK, PLANNER, EVICTOR)
COMPONENTS = (*USUAL, NOMINATOR, SHADOW)
"""What may be left out of a cluster; etcd and kube-apiserver are always there.
Nominator and shadow are left out where nothing is said."""

BRIDGES = {
    "none": frozenset(USUAL) - {EVICTOR},
    "external": frozenset((*USUAL, NOMINATOR)),
    "plugin": frozenset(USUAL),
}
"""The components of each form of makeway, by the chart's `bridge`; only `plugin` has the plugin."""

MOST_NATS_SERVERS = 3

EXTENDED_RESOURCE = "example.com/slice"
"""What the extenders of a cluster manage."""

LIFTED_RATES = (("victimsPerMinute", 1_000_000), ("victimsPercentPerTenMinutes", 100))
"""Limits of a policy that hold up no test and no benchmark: these evict more than the defaults allow."""


@dataclass(frozen=True)
class ClusterOptions:
    """How to start a cluster."""

    components: frozenset[str] = frozenset(USUAL)
    """Which of COMPONENTS to start. Without NATS none of scheduler plugin, planner and evictor gets a bus."""
    plugin: bool = True
    """Whether the scheduler runs the MakeWay plugin; without, and without test plugins, it is
    kube-scheduler's own binary."""
    small: bool = False
    """Whether a stand-in of our own plays the kubelets in KWOK's place, and kubectl is left out: with less to
    build, what the demo needs. See makeway.dev.kubelets."""
    controllers: bool = True
    """Whether kube-controller-manager runs. Without it no Deployment or DaemonSet makes pods, no budget gets
    a status, and pods have no service account."""
    fallback: bool = True
    """Whether DefaultPreemption follows MakeWay and the scheduler may delete pods."""
    nominated_sort: bool = False
    """Whether NominatedSort orders the scheduling queue in place of PrioritySort."""
    mode: str = "enforce"
    """`off`, `observe` or `enforce`: the mode of the policy that the cluster begins with."""
    limits: tuple[tuple[str, int], ...] = ()
    """Limits of that policy, such as ("victimsPerMinute", 1000000), in place of the defaults."""
    plan_timeout_seconds: float = 0.5
    """How long PostFilter waits for the planner. Five times the product's default: a shared two-core machine
    that also runs the control plane may take 100 ms to schedule a thread."""
    profiles: tuple[str, ...] = ("default-scheduler",)
    """The scheduler's profiles by name, all configured alike."""
    scheduler_feature_gates: tuple[tuple[str, bool], ...] = ()
    """For example (("SchedulerAsyncAPICalls", True),)."""
    extenders: tuple[str, ...] = ()
    """URLs of scheduler extenders, each with a verb `filter`, for pods that ask for EXTENDED_RESOURCE; the
    scheduler's own filters leave that resource to them."""
    plugin_arguments: tuple[tuple[str, Any], ...] = ()
    """Further fields of MakeWayArgs, over those set here."""
    apiserver_arguments: tuple[str, ...] = ()
    """Further flags of kube-apiserver."""
    planner_arguments: tuple[str, ...] = ()
    """Further options of `makeway planner`."""
    evictor_arguments: tuple[str, ...] = ()
    """Further options of `makeway evictor`."""
    failpoints: bool = False
    """Whether tests can kill, freeze or delay scheduler, planner and evictor at named points, by files in the
    cluster's directory `failpoints`; see makeway.dev.failpoints."""
    test_plugins: bool = False
    """Whether the scheduler also runs plugins that the product knows nothing of; see
    plugin/internal/testscheduler."""
    faulty: tuple[str, ...] = ()
    """Which of planner, evictor and scheduler reach the API server through a proxy that tests tell to spoil
    requests; see makeway.dev.fault_proxy."""
    partitions: bool = False
    """Whether each of planner, evictor, scheduler and their replicas reaches the API server and NATS by lines
    of its own, which tests cut; see makeway.dev.partitions."""
    nats_servers: int = 1
    """How many nats-servers there are; where there are several, each holds every stream."""
    known_nats_clients: bool = False
    """Whether NATS speaks TLS alone and lets in who shows a certificate of its authority; each part then logs
    in with an nkey, in place of a password."""
    consumers: str = ""
    """Named consumers, as `makeway streams --consumers` takes them; the developer may fetch from each."""
    subject_prefix: str = "makeway"
    """First token of every subject on the bus."""
    admission_policies: bool = False
    """Whether the chart's admission policies bound what evictor and scheduler do to pods."""
    signatures: str = "require"
    """`off`, `log` or `require`: what becomes of messages whose signature does not hold. But for `off`, the
    cluster has keys of its own; see makeway.dev.signing_keys."""

    def __post_init__(self) -> None:
        if unknown := self.components - set(COMPONENTS):
            raise ValueError(f"unknown components {sorted(unknown)}; there are {', '.join(COMPONENTS)}")
        if no_proxy := set(self.faulty) - {PLANNER, EVICTOR, SCHEDULER, NOMINATOR}:
            services = "planner, evictor, scheduler, nominator"
            raise ValueError(f"no fault proxy for {sorted(no_proxy)}: only for {services}")
        if not 1 <= self.nats_servers <= MOST_NATS_SERVERS:
            raise ValueError(f"nats_servers is {self.nats_servers}; it must be 1 to {MOST_NATS_SERVERS}")
        if self.signatures not in ("off", "log", "require"):
            raise ValueError(f"signatures is {self.signatures!r}; it must be off, log or require")
        if self.mode not in ("off", "observe", "enforce"):
            raise ValueError(f"mode is {self.mode!r}; it must be off, observe or enforce")

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**asdict(self), "components": sorted(self.components)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ClusterOptions":
        """The reverse of `to_dict`."""
        tuples = {
            key: tuple(tuple(item) if isinstance(item, list) else item for item in value)
            for key, value in values.items()
            if isinstance(value, list)
        }
        return cls(**{**values, **tuples, "components": frozenset(values["components"])})
