"""Settings for every test."""

import logging
import signal
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import settings

from stolen import doubted

# How long an example takes is the machine's affair; a test asserts no speed.
settings.register_profile("makeway", deadline=None)
settings.load_profile("makeway")

# A shell has what it runs in the background ignore interrupts, and so would all processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """Forget where a test's command had its logs written: that stream is closed when the test has ended."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
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
