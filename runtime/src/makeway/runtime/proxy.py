"""Which proxy the environment names for a server, as the standard library reads it.

NO_PROXY may also have networks (10.0.0.0/8) and domains with a star (*.example.com), as for kubectl.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass


def proxy_for(server: str) -> str | None:
    """Return the URL of the proxy for a server's URL; None where it is reached directly."""
    url, proxies = urlsplit(server), getproxies_environment()
    proxy, host = proxies.get(url.scheme), url.hostname or ""
    if not proxy or host == "localhost" or proxy_bypass(url.netloc):
        return None
    without = (*proxies.get("no", "").split(","), "127.0.0.0/8", "::1")
    if any(_holds(entry.strip(), host) for entry in without):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _holds(entry: str, host: str) -> bool:
    """Report whether an entry of NO_PROXY is an address or a network that holds a host's, or its domain."""
    if entry.startswith("*."):
        return host.endswith(entry[1:].lower())
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
