"""Python's cycle collector, kept from looking again and again at what stays for the life of the process.

A full collection looks at every object that can be part of a cycle: some 90,000 once a service's modules are
loaded, which holds the event loop for 50 ms, now and then. Those are set aside: the collector never looks at
them again, and a full collection takes as long as there is garbage. Values of the pure core are made without
the collector's header (`gc=False`), but what holds them has it: with 150,000 pods a full collection took
70 ms and more. So what a first list leaves behind is set aside as well.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 5_000
"""Objects made, and not dropped, between two looks at the young ones: a tenth of a millisecond each. Python's
own 700 are about the objects of one page or of a few messages, which are gone at the next look anyway."""


def keep() -> None:
    """Set aside what has been made lately, without a look at it: most of it stays. O(1).

    For the time in which a process fills its memory, and seldom later: garbage that is part of a cycle just
    then is never freed.
    """
    gc.freeze()


def set_aside() -> None:
    """Collect once, and set what is alive aside for good. Call it when a process has begun, before it serves.

    Holds the thread for about 50 ms. What is set aside and dropped later is freed as ever, unless it is part
    of a cycle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
