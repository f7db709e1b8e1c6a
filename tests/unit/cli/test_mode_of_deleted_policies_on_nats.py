"""What is shown, and what is written, where a policy was deleted and all parts go by it still."""

from pathlib import Path

import pytest

from fixtures_nats import NatsServer
from makeway.bus.client import Bus
from makeway.cli.check.cluster import configuration_results, not_stored
from makeway.cli.check.components import deleted
from makeway.cli.check.place import CheckedCluster
from makeway.cli.check.result import CheckResult, group_of
from makeway.cli.connect.form import Form
from makeway.runtime.kube import Api
from unit.cli.test_connect import kubeconfig, makeway
from unit.cli.test_mode import REVISION, status
from unit.cli.test_mode_brake import NOWHERE, Server, serving


@pytest.mark.nats
async def test_the_policy_that_was_deleted_is_shown_and_is_not_lifted_by_a_change_of_mode(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    server = Server()
    observing = status(component="planner", mode="observe", namespace_modes={}, brake="")
    await bus.components.answer(lambda: observing)

    async with serving(server) as url:
        where = f"--kubeconfig={kubeconfig(tmp_path, url)}", f"--nats-url={nats_server.url}"
        _, out, err = await makeway("mode", *where, exits=0)
        for wanted in ("enforce", "observe"):
            _, _, refused = await makeway("mode", wanted, "--yes", "--no-wait", *where, exits=1)
            assert f"policy {REVISION} stays effective: nothing was changed. Apply it again first" in refused
        assert server.configmaps == {}
        await makeway("mode", "observe", "--force", "--no-wait", *where, exits=0)

    assert out.startswith("mode: observe, by the last good policy\npolicy: gone, the last good one stays")
    assert "its ConfigMap was deleted, and whoever starts waits: apply it again" in out
    assert "goes by the last good policy" in out
    assert "no evictor answers" in err
    assert "mode: observe" in server.configmaps["makeway-policy"]["policy.yaml"]


async def test_where_it_is_not_known_whether_a_policy_was_deleted_none_is_written(tmp_path: Path) -> None:
    server = Server()

    async with serving(server) as url:
        where = f"--kubeconfig={kubeconfig(tmp_path, url)}", f"--nats-url={NOWHERE}"
        _, _, err = await makeway("mode", "observe", *where, exits=1)

    assert server.configmaps == {}
    assert "is not known: cannot connect to NATS" in err
    assert "give --force" in err


async def test_check_tells_of_what_was_deleted(tmp_path: Path) -> None:
    async with serving(Server()) as url:
        api = await Api.connect(kubeconfig=str(kubeconfig(tmp_path, url)), user_agent="test")
        found = await configuration_results(CheckedCluster(api, "makeway-system", Form(), replaced=False))
        await api.close()
    assert not_stored(found) == ["policy", "queues"]
    assert not_stored([CheckResult("configuration", "unknown", "forbidden")]) == []

    (told,) = deleted([status(queues_revision="")], not_stored(found))

    assert (told.name, told.state, group_of(told.name)) == (
        "policy ConfigMap makeway-policy",
        "wrong",
        "configuration",
    )
    assert REVISION in told.detail
    assert list(deleted([status()], [])) == []
