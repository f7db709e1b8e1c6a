"""`makeway mode` for a namespace that does not exist any more."""

from pathlib import Path

from makeway.core.policy.brake import RELEASED, Brake, data_of
from unit.cli.test_mode_brake import GOOD, Server, mode


async def test_what_is_set_for_a_namespace_that_is_gone_is_shown_and_taken_back_and_no_mode_is_set_for_it(
    tmp_path: Path,
) -> None:
    braked = data_of(Brake(namespaces=frozenset({"team-b"})))
    gone = GOOD + "namespaceModes: {team-b: observe}\n"
    server = Server(makeway_policy={"policy.yaml": gone}, makeway_brake=braked)

    code, _, err = await mode(server, tmp_path, "enforce", "--yes", "--release", "-n", "team-b", "--no-wait")
    assert (code, server.configmaps["makeway-policy"]["policy.yaml"]) == (1, gone)
    assert "there is no namespace team-b: nothing was changed" in err

    code, out, err = await mode(server, tmp_path, "-n", "team-b", "--no-wait")
    assert (code, "set for team-b" in out) == (0, True), out + err

    for _ in range(2):
        code, _, err = await mode(
            server, tmp_path, "inherit", "--yes", "--release", "-n", "team-b", "--no-wait"
        )
        assert (code, server.brake) == (0, RELEASED), err
    assert "team-b" not in server.configmaps["makeway-policy"]["policy.yaml"]
