"""Proxies of the environment, and what is reached without one."""

import pytest

from makeway.runtime.proxy import proxy_for

PROXY = "http://proxy:3128"
API = "https://10.96.0.1:443"


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        (API, "10.96.0.0/12", True),
        (API, "10.0.0.0/24, 10.96.0.1/12", True),
        (API, "10.0.0.0/24", False),
        (API, "fd00::/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        (API, "10.96.0.1", True),
        (API, "10.96.0.1:443", True),
        (API, "10.96.0.1:6443", False),
        ("https://api.example.com:6443", "example.com", True),
        ("https://api.example.com:6443", ".example.com", True),
        ("https://api.example.com:6443", "*.example.com", True),
        ("https://badexample.com", "example.com", False),
        ("https://badexample.com", "*.example.com", False),
        ("https://api.example.com:6443", "10.96.0.0/12", False),
        ("https://api.example.com:6443", "*", True),
        ("https://api.example.com:6443", ":6443,,/,x/y", False),
        ("https://localhost:6443", "", True),
        ("https://127.0.0.2:6443", "", True),
        ("https://[::1]:6443", "", True),
        (API, "", False),
    ],
)
def test_no_proxy_names_hosts_domains_and_networks(
    server: str, no_proxy: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    monkeypatch.setenv("NO_PROXY", no_proxy)

    assert proxy_for(server) == (None if direct else PROXY)


def test_the_scheme_chooses_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "plain:1")

    assert proxy_for("http://x") == "http://plain:1"
    assert proxy_for("https://x") is None
