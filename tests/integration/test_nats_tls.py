"""A NATS that speaks TLS alone and lets in who shows a certificate of its authority and has a known nkey."""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.builders import make_node
from integration.cluster import RunningCluster
from integration.preempting import assert_only_ordered_pods_were_deleted, outcome_of_order, run_victims, sized
from integration.space import open_space
from integration.waiting import NotYet, until
from makeway.dev.nats_identities import NatsIdentity
from makeway.dev.options import EVICTOR, PLANNER, SCHEDULER
from makeway.dev.pki import Authority
from makeway.dev.ports import Ports
from makeway.dev.process_set import ProcessSet
from makeway.dev.processes import Program
from narrowing import there

pytestmark = pytest.mark.wide

NO_CERTIFICATE = "it asks for a client certificate, and got none"
OTHER_AUTHORITY = "it does not trust the authority of the client certificate"
OTHER_NAME = "its certificate is not valid for '0.0.0.0'"
_OTHER_WORDS = re.compile(r"SSL|_ssl\.c|ALERT|x509|Errno|Traceback|Exception")


async def makeway(cluster: RunningCluster, *command: str) -> tuple[int, str]:
    """Run a command with the administrator's kubeconfig; return its exit code and what it said."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "makeway"),
        *command,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "KUBECONFIG": str(cluster.info.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = (await asyncio.wait_for(process.communicate(), 60))[0].decode()
    return there(process.returncode), said


@pytest.mark.both_forms(by_target=True)
async def test_every_part_and_the_command_get_in_with_certificates_of_their_own(
    secured_cluster: RunningCluster,
) -> None:
    cluster = secured_cluster
    async with open_space(cluster) as space:
        await space.add_nodes(make_node("n1").cpu("500m"))
        await run_victims(space, sized("victim", "low", 500).on("n1"))
        (urgent,) = await space.create(sized("urgent", "high", 500))

        assert await space.until_bound("urgent") == "n1"
        order, outcome = await outcome_of_order(space, urgent)
        assert ([victim.name for victim in order.victims], outcome.result) == (["victim"], "succeeded")
        await assert_only_ordered_pods_were_deleted(space, [urgent])

        # Where NATS is, and with what, stands in the ConfigMap of the installation and in its Secrets.
        why, checked, unreadable = [
            await makeway(cluster, *command)
            for command in (("why", "-n", space.namespace, "urgent"), ("check",), ("history", "--unreadable"))
        ]
        assert (why[0], f"order {order.order_id}" in why[1]) == (0, True), why
        assert checked[0] == 0, checked
        assert unreadable == (0, "no message was put aside\n")


class Strangers:
    """Parts of a cluster once more, with what NATS does not take."""

    def __init__(self, cluster: RunningCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self._ports = Ports()
        self._processes = ProcessSet(directory)
        (directory / "logs").mkdir(parents=True, exist_ok=True)

    def stop(self) -> None:
        self._processes.stop()
        self._ports.release()

    def start(self, name: str, component: str, identity: NatsIdentity, host: str) -> Callable[[], str]:
        """Start a part that logs in to NATS as another one; returns what reads its log."""
        program = self._cluster.process(component).program
        port = self._ports.take()
        options = {"listen": f"127.0.0.1:{port}", "secure-port": str(port)}
        if component == SCHEDULER:
            options["config"] = self._scheduler(program, name, identity, host)
        else:
            options["nats-url"] = self._url(host)
            options |= dict(option.removeprefix("--").split("=", 1) for option in identity.options())
        argv = [_changed(argument, options) for argument in program.argv]
        process = self._processes.start(
            replace(program, name=name, argv=tuple(one for one in argv if one), restart=False)
        )
        return process.log.read_text

    def _url(self, host: str) -> str:
        return self._cluster.info.nats_url.replace("127.0.0.1", host)

    def _scheduler(self, program: Program, name: str, identity: NatsIdentity, host: str) -> str:
        config = next(Path(one.partition("=")[2]) for one in program.argv if one.startswith("--config="))
        written: dict[str, Any] = yaml.safe_load(config.read_text())
        arguments = identity.arguments()
        arguments["tls"] = {key: file for key, file in arguments["tls"].items() if file != _NOTHING}  # type: ignore[attr-defined] # it is a dict
        for plugin in written["profiles"][0]["pluginConfig"]:
            plugin["args"] |= {**arguments, "natsURL": self._url(host)}
        file = self._directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump(written))
        return str(file)


_NOTHING = "."
"""A certificate that is not given."""


def _changed(argument: str, options: dict[str, str]) -> str:
    """Give an option another value; empty where it is left out."""
    name = argument.removeprefix("--").partition("=")[0]
    if not argument.startswith("--") or name not in options:
        return argument
    return f"--{name}={options[name]}" if options[name] != _NOTHING else ""


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[Callable[[RunningCluster], Strangers]]:
    made: list[Strangers] = []

    def make(cluster: RunningCluster) -> Strangers:
        made.append(Strangers(cluster, tmp_path / "strangers"))
        return made[-1]

    yield make
    for one in made:
        one.stop()


async def test_who_shows_no_certificate_another_authoritys_or_asks_for_another_name_is_told_so(
    secured_cluster: RunningCluster, strangers: Callable[[RunningCluster], Strangers], tmp_path: Path
) -> None:
    cluster = secured_cluster
    known = there(cluster.owned.nats_identity("viewer"))
    nothing = Path(_NOTHING)
    without = replace(known, client=replace(known.client, certificate=nothing, key=nothing))
    other = replace(known, client=Authority(tmp_path / "other").client("viewer"))
    refused = {
        "none": (without, "127.0.0.1", NO_CERTIFICATE),
        "other": (other, "127.0.0.1", OTHER_AUTHORITY),
        # Leads to this machine too, and is not in the server's certificate.
        "name": (known, "0.0.0.0", OTHER_NAME),  # noqa: S104 - it is asked, and listened at by none
    }
    started = strangers(cluster)
    logs = {
        f"{component}-{name}": (started.start(f"{component}-{name}", component, identity, host), wanted)
        for component in (PLANNER, SCHEDULER)
        for name, (identity, host, wanted) in refused.items()
    }
    logs[EVICTOR] = started.start(EVICTOR, EVICTOR, without, "127.0.0.1"), NO_CERTIFICATE

    def told(name: str) -> Callable[[], Awaitable[str]]:
        async def look() -> str:
            read, wanted = logs[name]
            lines = [line for line in read().splitlines() if wanted in line]
            if not lines:
                raise NotYet(read()[-1000:])
            return lines[-1]

        return look

    for name in logs:
        line = await until(f"{name} says why", told(name))
        assert re.search(r"cannot connect to NATS at tls://|nats_connect_failed.*tls://", line), line
        assert re.search("give --nats-tls|name (one|another)|address it", line), line
        assert not _OTHER_WORDS.search(line), line

    for identity, host, wanted in refused.values():
        options = [option for option in identity.options() if not option.endswith(f"={_NOTHING}")]
        url = cluster.info.nats_url.replace("127.0.0.1", host)
        code, said = await makeway(cluster, "history", f"--nats-url={url}", *options)
        waited = said.removeprefix("makeway: no connection to NATS yet\n")  # where that took over 1.5 s
        assert (code, len(waited.splitlines())) == (3, 1), said
        assert wanted in waited
        assert "does NATS run" not in said
        assert not _OTHER_WORDS.search(said), said
