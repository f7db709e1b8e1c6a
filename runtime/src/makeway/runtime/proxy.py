"""Which proxy the environment names for a server, as Go's programs, and so the scheduler, read it. Pure.

Source: golang.org/x/net/http/httpproxy. Python's own reading differs: it knows no CIDR and no port in
NO_PROXY, and prefers the lower-case names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

_PORTS: Final = {"http": "80", "https": "443"}

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def proxy_for(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server's URL; None where it is reached directly."""
    url = urlsplit(server)
    name = f"{url.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name)
    if url.scheme not in _PORTS or not proxy:
        return None
    host, port = (url.hostname or "").lower(), str(url.port or _PORTS[url.scheme])
    without = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    if _direct(host, port, without):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _direct(host: str, port: str, no_proxy: str) -> bool:
    if host in ("", "localhost"):
        return True
    address = _address(host)
    if address is not None and address.is_loopback:
        return True
    return any(_matches(entry.strip().lower(), host, port, address) for entry in no_proxy.split(","))


def _matches(entry: str, host: str, port: str, address: _Address | None) -> bool:
    """Report whether an entry of NO_PROXY names the host: `*`, a CIDR, an address, a domain; with a port."""
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _in_network(address, entry)
    wanted, wanted_port = _split(entry)
    if not wanted or (wanted_port and wanted_port != port):
        return False
    if (named := _address(wanted)) is not None:
        return named == address
    if address is not None:
        return False
    domain = wanted[1:] if wanted.startswith("*.") else wanted
    if domain.startswith("."):
        return host.endswith(domain)
    return host == domain or host.endswith(f".{domain}")


def _split(entry: str) -> tuple[str, str]:
    """An entry's host without brackets, and its port; empty where there is none. `:80` names no host."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host, port
    return entry, ""


def _address(text: str) -> _Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _in_network(address: _Address, entry: str) -> bool:
    try:
        return address in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
