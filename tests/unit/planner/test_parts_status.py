"""What a planner answers when it is asked how it is."""

from typing import Any, cast
from unittest.mock import MagicMock

from makeway.planner.service.parts import Parts


def test_a_key_that_is_not_published_is_named_in_the_words_of_the_signatures() -> None:
    """So that `makeway check` tells it once."""
    parts: Any = MagicMock()
    parts._context.mode = parts.seen.configuration.in_force.mode = "enforce"
    parts.seen.configuration.in_force.modes.return_value = {}
    parts.checks.return_value = dict.fromkeys(("nats", "synced", "snapshot", "configuration", "clock"), "")
    signatures = parts._context.bus.signatures
    signatures.unpublished.return_value, signatures.trouble = "nothing is signed", "no such key"

    assert Parts.status(cast("Parts", parts)).trouble == "no such key"
