"""Which components answer, and whether pods are evicted."""

from msgspec.structs import replace

from makeway.bus.component_status import ComponentStatus
from makeway.dev.samples import MESSAGES
from makeway.ui.model.now import Acting, acting_of
from narrowing import as_a


def test_the_head_says_the_mode_of_those_that_act_and_what_stops_them() -> None:
    sample = as_a(ComponentStatus, MESSAGES["component-status.full"])
    quiet = replace(sample, mode="enforce", namespace_modes={}, brake="", breaker="", leading=True)
    planner, evictor = replace(quiet, component="planner"), replace(quiet, component="evictor")
    standby = replace(planner, mode="off", leading=False)
    shadow = replace(planner, component="shadow", mode="observe", leading=False)

    assert acting_of(None) == Acting("", (), ())
    assert acting_of([planner, evictor, standby, shadow]).mode == "enforce"
    assert acting_of([planner, replace(evictor, mode="off")]).mode == "enforce/off"
    braked = [replace(one, mode="off", brake="everywhere") for one in (planner, evictor)]
    off = acting_of(braked)
    assert (off.mode, off.stops, off.by_part) == (
        "off",
        ("braked everywhere",),
        ("planner: off", "evictor: off"),
    )
    some = acting_of([replace(planner, brake="shop, ml"), replace(evictor, breaker="rack r1: 20 victims")])
    assert some.stops == ("braked for shop, ml", "breaker open")
    scheduler = replace(quiet, component="scheduler", leading=False)
    assert acting_of([planner, evictor, scheduler]).stops == ()
    assert acting_of([planner, scheduler]).stops == ("no evictor answers",)
    assert acting_of([replace(scheduler, component="nominator")]).stops == (
        "no planner answers",
        "no evictor answers",
    )
    own = replace(planner, namespace_modes={"shop": "observe"})
    assert acting_of([own]).by_part == ("planner: enforce", "namespace shop: observe")
