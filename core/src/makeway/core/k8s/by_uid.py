"""What is kept of each object of a list-watch, by its UID. Pure."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from makeway.core.k8s.objects import Metadata


class MetadataObject(Protocol):
    """An object with metadata, which all Kubernetes objects are."""

    @property
    def metadata(self) -> Metadata:
        """Name, UID and version."""


T = TypeVar("T", bound=MetadataObject)
V = TypeVar("V")


class ByUid(Generic[T, V]):
    """A handler of a list-watch. O(1) a change.

    `by_uid`: what `keep` returns of the objects, those excepted of which it returns None.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, V] = {}

    def keep(self, item: T) -> V | None:
        """Return what to keep of an object; None where nothing is."""
        raise NotImplementedError

    def changed(self, uid: str) -> None:
        """Called when what is kept of an object is another, or nothing any more."""

    def put(self, item: T) -> None:
        """Take an object."""
        self._set(item.metadata.uid, self.keep(item))

    def drop(self, item: T) -> None:
        """Forget an object that is gone."""
        self._set(item.metadata.uid, None)

    def retain(self, uids: set[str]) -> None:
        """Forget objects that a complete list does not have."""
        for uid in self.by_uid.keys() - uids:
            self._set(uid, None)

    def _set(self, uid: str, value: V | None) -> None:
        before = self.by_uid.get(uid)
        if value is not None:
            self.by_uid[uid] = value
        else:
            self.by_uid.pop(uid, None)
        if value != before:
            self.changed(uid)
