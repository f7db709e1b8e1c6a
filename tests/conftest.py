"""Settings for every test, and which of them are run."""

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import settings

from stolen import doubted
from tool_tests import are_due, changed_paths

# How long an example takes is the machine's affair; a test asserts no speed. `make fuzz` draws more examples.
EXAMPLES = int(os.environ.get("MAKEWAY_EXAMPLES", "100"))
settings.register_profile("makeway", deadline=None, max_examples=EXAMPLES)
settings.load_profile("makeway")

# A shell has what it runs in the background ignore interrupts, and so would all processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest's workers have it; commands print as in a pipe, whatever tests are run from.
os.environ.pop("COLUMNS", None)


_DEFAULTS = structlog.get_config()["processors"][:-1]


def _log_plainly() -> None:
    """Keep rich, which takes two seconds for a traceback, from lines that no command's settings rule."""
    structlog.reset_defaults()
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*_DEFAULTS, plain])


_log_plainly()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--tools`: tests are run that are named, unless it says that tests of tools are run where due."""
    parser.addoption("--tools", choices=("all", "changed"), default="all", help="see tests/tool_tests.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests of tools out that are not due."""
    tools = [item for item in items if item.get_closest_marker("tools")]
    if not tools or config.option.tools == "all" or are_due(changed_paths(config.rootpath)):
        return
    items[:] = [item for item in items if item not in tools]
    config.hook.pytest_deselected(items=tools)


def pytest_collection_finish() -> None:
    """Take what collecting has made out of garbage collections, one sixteenth of the unit tests' CPU time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Forget where a test's command had its logs written: that stream is closed when the test has ended."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    _log_plainly()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Tell failures apart for which the machine is to blame."""
    with doubted():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """The same, in the test itself."""
    with doubted():
        return (yield)
