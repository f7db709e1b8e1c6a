"""Who asks: the user that kube-apiserver names in headers, and by what it proves that it is kube-apiserver.

An aggregated API server trusts the headers of a client that has a certificate of the request-header
authority. Which one that is, and which headers, every cluster says in ConfigMap
kube-system/extension-apiserver-authentication. Source: Kubernetes' "Configure the Aggregation Layer". Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

CONFIGMAP: Final = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class FrontProxy(msgspec.Struct, frozen=True):
    """What kube-apiserver is known by.

    authority: certificates (PEM) of whoever may name a user. allowed_names: common names that its certificate
    may have; none: any. The headers are in lower case: of each sort the first that is there counts.
    """

    authority: str
    allowed_names: tuple[str, ...]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]
    uid_headers: tuple[str, ...] = ()


class User(msgspec.Struct, frozen=True):
    """A user as kube-apiserver has authenticated them, in the fields of a SubjectAccessReview."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}


def front_proxy_of(data: Mapping[str, str]) -> FrontProxy:
    """Read the ConfigMap's data.

    Raises:
        ValueError: it names no authority, or no header for the user; or is none of this form.
    """

    def listed(key: str, *, lower: bool = True) -> tuple[str, ...]:
        try:
            names = msgspec.json.decode(data.get(f"requestheader-{key}") or "[]", type=tuple[str, ...])
        except msgspec.DecodeError as error:
            raise ValueError(f"requestheader-{key} is no list of texts: {error}") from error
        return tuple(name.lower() for name in names) if lower else names

    found = FrontProxy(
        authority=data.get("requestheader-client-ca-file", ""),
        allowed_names=listed("allowed-names", lower=False),
        user_headers=listed("username-headers"),
        group_headers=listed("group-headers"),
        extra_prefixes=listed("extra-headers-prefix"),
        uid_headers=listed("uid-headers"),
    )
    if not found.authority or not found.user_headers:
        raise ValueError("it names no request-header authority: the aggregation layer is not set up")
    return found


def common_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the common name of a peer's certificate, as `ssl` has it; empty where there is none."""
    subject = (certificate or {}).get("subject", ())
    return next((value for part in subject for key, value in part if key == "commonName"), "")


def user_of(proxy: FrontProxy, peer: str, headers: Iterable[tuple[str, str]]) -> User | None:
    """Return the user that a request names; None where it names none, or its client may not name one.

    peer: the common name of the client's certificate, which the authority has issued.
    """
    if proxy.allowed_names and peer not in proxy.allowed_names:
        return None
    given = [(name.lower(), value) for name, value in headers]

    def first(names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if found := tuple(value for key, value in given if key == name and value):
                return found
        return ()

    name = first(proxy.user_headers)
    if not name:
        return None
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in given:
        for prefix in proxy.extra_prefixes:
            if key.startswith(prefix):
                field = unquote(key.removeprefix(prefix)).lower()
                extra[field] = (*extra.get(field, ()), value)
                break
    uid = first(proxy.uid_headers)
    return User(name[0], first(proxy.group_headers), uid[0] if uid else "", extra)
