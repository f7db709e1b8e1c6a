"""Settings for every test."""

import signal

from hypothesis import settings

# How long an example takes is the machine's affair; a test asserts no speed.
settings.register_profile("makeway", deadline=None)
settings.load_profile("makeway")

# A shell has what it runs in the background ignore interrupts, and so would all processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
