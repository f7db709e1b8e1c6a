"""Applications: which pods belong together, and which of them came first.

A pod names its application by the label or annotation `yunikorn.apache.org/app-id` or `applicationId`;
pods of one namespace with one name are one application. Its first pod, by creation and then UID, is its
originator (a Spark driver, say), and goes last. A pod without a name has no application.
"""

from __future__ import annotations

from collections.abc import Set

Key = tuple[str, str]
"""Namespace and name of an application."""


class Applications:
    """The pods of each application, kept as they come and go; O(1), and O(pods) where the first goes."""

    def __init__(self) -> None:
        self._pods: dict[Key, dict[str, int]] = {}
        self._first: dict[Key, str] = {}

    def add(self, key: Key, uid: str, created_micros: int) -> None:
        """Enter a pod of an application."""
        pods = self._pods.setdefault(key, {})
        pods[uid] = created_micros
        first = self._first.setdefault(key, uid)
        if (created_micros, uid) < (pods[first], first):
            self._first[key] = uid

    def discard(self, key: Key, uid: str) -> None:
        """Take a pod out, if it is in."""
        pods = self._pods.get(key)
        if pods is None or pods.pop(uid, None) is None:
            return
        if not pods:
            del self._pods[key], self._first[key]
        elif self._first[key] == uid:
            self._first[key] = min(pods, key=lambda one: (pods[one], one))

    def originator(self, key: Key) -> str:
        """Give the UID of an application's first pod that is there; empty for one without pods."""
        return self._first.get(key, "")

    def pods(self, key: Key) -> Set[str]:
        """Give the UIDs of an application's pods."""
        return self._pods.get(key, {}).keys()
