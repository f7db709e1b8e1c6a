"""Proxies of the environment, read as Go reads them: cases of golang.org/x/net/http/httpproxy."""

import pytest

from makeway.runtime.proxy import proxy_for

PROXY = "http://proxy:3128"
API = "https://10.96.0.1:443"


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        (API, "10.96.0.0/12", True),
        (API, "10.96.0.1/12", True),  # bits below the mask do not matter
        (API, "10.0.0.0/24,10.96.0.0/12", True),
        (API, " 10.96.0.0/12 ", True),
        (API, "10.0.0.0/24", False),
        (API, "fd00::/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://[fd00::1]:6443", "fd00::1", True),
        (API, "10.96.0.1", True),
        (API, "10.96.0.1:443", True),
        (API, "10.96.0.1:6443", False),
        ("https://10.96.0.1", "10.96.0.1:443", True),
        ("https://api.example.com:6443", "example.com", True),
        ("https://api.example.com:6443", ".example.com", True),
        ("https://api.example.com:6443", "*.example.com", True),
        ("https://api.example.com:6443", "EXAMPLE.com:6443", True),
        ("https://api.example.com:6443", "example.com:443", False),
        ("https://example.com", ".example.com", False),
        ("https://badexample.com", "example.com", False),
        ("https://api.example.com:6443", "10.96.0.0/12", False),
        ("https://api.example.com:6443", "*", True),
        ("https://api.example.com:6443", ":6443,,/,x/y", False),
        ("https://localhost:6443", "", True),
        ("https://127.0.0.2:6443", "", True),
        ("https://[::1]:6443", "", True),
        (API, "", False),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(server: str, no_proxy: str, direct: bool) -> None:
    environment = {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}

    assert proxy_for(server, environment) == (None if direct else PROXY)


def test_the_scheme_chooses_the_proxy_and_upper_case_goes_first() -> None:
    both = {"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1", "http_proxy": "plain:1"}

    assert proxy_for("https://x", both) == "http://upper:1"
    assert proxy_for("http://x", both) == "http://plain:1"
    assert proxy_for("https://x", {"https_proxy": "http://lower:1"}) == "http://lower:1"
    assert proxy_for("https://x", {"HTTP_PROXY": PROXY}) is None
    assert proxy_for("https://x", {"https_proxy": PROXY, "no_proxy": "x"}) is None
