"""Why observing refuses a plan, for whoever reads refusals without planning. Pure; it imports nothing."""

from __future__ import annotations

from typing import Final

PREEMPTION_LOOP: Final = "PreemptionLoop"
"""Reason of a refusal by back-off from a preemption loop."""
