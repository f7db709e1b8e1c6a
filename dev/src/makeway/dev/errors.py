"""What can go wrong with a control plane, said so that a person can act on it."""


class DevError(Exception):
    """A failure of the control plane. Its text names what failed, and what to do or where to look."""
