"""The index of log events has each that a service can say."""

from pathlib import Path

import pytest

from makeway.dev import log_events


def test_events_of_a_start_of_configurations_and_of_requests_are_listed() -> None:
    events = {one.event for one in log_events.said()}

    assert {"nats_awaited", "keys_awaited", "config_refused", "config_gone", "repair_failed"} <= events


def test_an_event_that_is_no_constant_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "runtime/src/one.py"
    source.parent.mkdir(parents=True)
    source.write_text('_log.info(f"config_{result}")\n')
    monkeypatch.setattr(log_events, "CHECKOUT", tmp_path)

    with pytest.raises(ValueError, match=r"one\.py:1: name the event by a constant"):
        log_events.said()
