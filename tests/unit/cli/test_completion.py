"""What a shell offers: names of the cluster, and nothing where there are none to be had."""

from pathlib import Path

import pytest

from unit.cli.test_connect import api_server, kubeconfig, makeway


async def offered(*words: str, **environment: str) -> list[str]:
    """What could stand as the last word."""
    _, out, err = await makeway(
        _MAKEWAY_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS=" ".join(["makeway", *words]),
        exits=None,
        **environment,
    )
    assert err == ""
    return [line.partition("\t")[0] for line in out.split("\n") if line]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("why", "web"), ["web-0", "web-1"]),
        (("why", "-n", "shop", "web-1"), ["web-1"]),
        (("why", "shop/w"), ["shop/web-0", "shop/web-1"]),
        (("why", "x"), []),
        (("history", "-n", "web"), ["web-0", "web-1"]),
        (("mode", "off", "--namespace", "d"), ["db-0"]),
    ],
)
async def test_pods_and_namespaces_are_offered(
    words: tuple[str, ...], names: list[str], tmp_path: Path
) -> None:
    found = {"items": [{"metadata": {"name": name}} for name in ("web-1", "web-0", "db-0")]}

    async with api_server(200, found) as url:
        assert await offered(*words, KUBECONFIG=kubeconfig(tmp_path, url)) == names


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_nothing_is_offered_or_said_where_it_cannot_be_read(status: int, tmp_path: Path) -> None:
    async with api_server(status, {"kind": "Status", "message": "no"}) as url:
        assert await offered("why", "w", KUBECONFIG=kubeconfig(tmp_path, url)) == []
    assert await offered("why", "w", KUBECONFIG="/nonexistent") == []


async def test_nothing_is_said_of_an_api_server_that_takes_its_time(tmp_path: Path) -> None:
    async with api_server(200, {"items": [{"metadata": {"name": "web-0"}}]}, after_seconds=2) as url:
        assert await offered("why", "w", KUBECONFIG=kubeconfig(tmp_path, url)) == ["web-0"]
