import io
import json
import logging
from datetime import datetime

import pytest
import structlog

from makeway.runtime import logs


def configured(format: logs.Format = "json", level: logs.Level = "info") -> io.StringIO:  # noqa: A002
    out = io.StringIO()
    logs.configure(format, level, "planner", "node-1_42_ab", out)
    return out


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_json_line_says_when_how_bad_what_and_who_before_all_else() -> None:
    out = configured()

    structlog.get_logger().info("order_received", order_id="ord-1", node="node-1")

    (line,) = lines(out)
    assert list(line) == ["time", "level", "event", "component", "identity", "order_id", "node"]
    assert (line["level"], line["event"]) == ("info", "order_received")
    assert (line["component"], line["identity"]) == ("planner", "node-1_42_ab")
    time = datetime.fromisoformat(str(line["time"]))
    assert str(line["time"]).endswith("Z")
    assert time.utcoffset() is not None


def test_ids_bound_round_a_message_stand_on_every_line_within_and_on_none_after() -> None:
    out = configured()
    log = structlog.get_logger()

    with logs.bound(order_id="ord-1"):
        log.info("inside")
    log.info("outside")

    inside, outside = lines(out)
    assert inside["order_id"] == "ord-1"
    assert "order_id" not in outside


def test_lines_below_the_level_are_left_out() -> None:
    out = configured(level="warning")
    log = structlog.get_logger()

    log.info("quiet")
    log.warning("loud")

    assert [line["event"] for line in lines(out)] == ["loud"]


def test_what_libraries_log_comes_as_json_too() -> None:
    out = configured()

    logging.getLogger("some.library").error("it %s", "broke")
    logging.getLogger("some.library").info("chatter")

    (line,) = lines(out)
    assert (line["event"], line["logger"], line["component"]) == ("it broke", "some.library", "planner")


def test_the_end_of_a_connection_with_tls_is_no_warning() -> None:
    out = configured()

    said = "returning true from eof_received() has no effect when using ssl"
    logging.getLogger("asyncio").warning(said)
    logging.getLogger("asyncio").warning("something else")

    assert [line["event"] for line in lines(out)] == ["something else"]


def test_an_exception_stays_on_one_line() -> None:
    out = configured()

    try:
        raise RuntimeError("two\nlines")
    except RuntimeError as error:
        structlog.get_logger().error("failed", exc_info=error)

    (line,) = lines(out)
    assert "RuntimeError: two\nlines" in str(line["exception"])


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    out = configured()

    structlog.get_logger().info("odd", value=ValueError("why"))

    assert lines(out)[0]["value"] == "why"


def test_text_is_for_people() -> None:
    out = configured(format="text")

    structlog.get_logger().info("order_received", order_id="ord-1")

    assert "order_received" in out.getvalue()
    assert "order_id=ord-1" in out.getvalue()


def test_an_unknown_level_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="debug, info, warning, error"):
        logs.configure("json", "loud", "planner", "x")  # type: ignore[arg-type]
