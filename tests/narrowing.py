"""A value that has to be of a kind, in one call: for what may also be a refusal, an error or nothing."""

from typing import TypeVar

T = TypeVar("T")


def as_a(kind: type[T], value: object) -> T:
    """Return the value, which has to be of a kind."""
    assert isinstance(value, kind), value
    return value


def there(value: T | None) -> T:
    """Return the value, which has to be there."""
    assert value is not None
    return value
