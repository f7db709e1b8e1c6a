"""Settings for every test."""

from hypothesis import settings

# How long an example takes is the machine's affair; a test asserts no speed.
settings.register_profile("makeway", deadline=None)
settings.load_profile("makeway")
