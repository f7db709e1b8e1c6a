"""Run what the chart renders, as local processes: the same arguments, environment, files, tokens and users.

What a kubelet and a cluster network would do is done here, and nothing else: values come out of Secrets and
ConfigMaps, volumes become directories, names of Services become ports of this machine, and the token of a
service account is put into a kubeconfig.
"""

import itertools
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from integration.cluster import RunningCluster
from makeway.dev.binaries import HELM, KUBERNETES_VERSION, MAKEWAY_SCHEDULER, NATS_SERVER
from makeway.dev.build import ensure
from makeway.dev.kubeconfig import write_with_token
from makeway.dev.paths import CHART
from makeway.dev.ports import Ports
from makeway.dev.probes import Probe, http_ok, unverified
from makeway.dev.process_set import ProcessSet
from makeway.dev.processes import Process, Program
from makeway.dev.progress import ConsoleProgress

Manifest = dict[str, Any]

NAMESPACE = "preemption"
"""Not the one that everything defaults to, so that a name that was not moved is noticed."""

_OWN_MAKEWAY = Path(sys.executable).with_name("makeway")
_TOKEN_SECONDS = 3600
_NOT_SERVED = ("monitoring.coreos.com/v1",)
_WORKLOADS = ("Deployment", "StatefulSet", "Job", "Pod")
_STREAMS = "makeway-streams"
_IN_POD = "/var/run/secrets/kubernetes.io/serviceaccount"


def render(*settings: str, values: Path | None = None) -> list[Manifest]:
    """`helm template` with these `--set`s, over a file of values."""
    helm = ensure([HELM], ConsoleProgress())[HELM.name]
    command = [str(helm), "template", "makeway", str(CHART), f"--namespace={NAMESPACE}"]
    command += [f"--kube-version={KUBERNETES_VERSION}", *(f"--set={one}" for one in settings)]
    command += [f"--values={values}"] if values else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


class Release:
    """One installation of the chart on a running API server."""

    def __init__(
        self,
        cluster: RunningCluster,
        manifests: list[Manifest],
        directory: Path,
        makeway: Path = _OWN_MAKEWAY,
    ) -> None:
        self.manifests = manifests
        self._makeway = makeway
        self._cluster = cluster
        self._directory = directory
        self._ports = Ports()
        self._processes = ProcessSet(directory)
        self._numbers = itertools.count(1)
        self._built = ensure([NATS_SERVER, MAKEWAY_SCHEDULER], ConsoleProgress())
        self._nats = {"4222": self._ports.take(), "8222": self._ports.take()}
        self.host = directory / "host"
        """The root of the file system of the node that static pods run on."""

    async def apply(self) -> None:
        """Apply everything but the workloads, which no kubelet here could run, after a dry run of those."""
        manifests = [one for one in self.manifests if one["apiVersion"] not in _NOT_SERVED]
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        await self._kubectl([{**namespace, "metadata": {"name": NAMESPACE, "labels": restricted}}])
        await self._kubectl([one for one in manifests if one["kind"] not in _WORKLOADS])
        workloads = [one for one in manifests if one["kind"] in _WORKLOADS]
        said = await self._kubectl(workloads, "--dry-run=server")
        assert "would violate PodSecurity" not in said, said

    async def _kubectl(self, manifests: list[Manifest], *options: str) -> str:
        text = yaml.safe_dump_all(manifests)
        return await self._cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", *options, "-f", "-", stdin=text
        )

    def get(self, kind: str, name: str) -> Manifest:
        """A rendered object."""
        return next(one for one in self.manifests if one["kind"] == kind and one["metadata"]["name"] == name)

    def url(self, user: str) -> str:
        """How a user of the chart's NATS reaches it from here."""
        return self._local(self.secret(f"makeway-nats-{user}", "url")["url"])

    def nats_environment(self, user: str) -> dict[str, str]:
        """How a command of makeway reaches the chart's NATS as a user."""
        files = self._directory / "logins" / user
        self._write_secret(files, {"secretName": f"makeway-nats-{user}"})
        return {
            "MAKEWAY_NATS_URL": self.url(user),
            "MAKEWAY_NATS_TLS_CA": str(files / "ca.crt"),
            "MAKEWAY_NATS_TLS_CERT": str(files / "tls.crt"),
            "MAKEWAY_NATS_TLS_KEY": str(files / "tls.key"),
        }

    def tls(self, user: str) -> ssl.SSLContext:
        """The certificates that a user of the chart's NATS verifies and shows."""
        files = self.nats_environment(user)
        context = ssl.create_default_context(cafile=files["MAKEWAY_NATS_TLS_CA"])
        # What newer versions of Python ask for by default.
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_cert_chain(files["MAKEWAY_NATS_TLS_CERT"], files["MAKEWAY_NATS_TLS_KEY"])
        return context

    def start_nats(self) -> Process:
        """Run nats-server with the configuration that was rendered."""
        monitor = f"http://127.0.0.1:{self._nats['8222']}/healthz"
        path = f"{self._built[NATS_SERVER.name].parent}:{os.environ['PATH']}"
        return self._start("nats", "/bin/sh", http_ok(monitor), extra={"PATH": path})

    def start_scheduler(self) -> tuple[Process, str]:
        """Run makeway-scheduler; gives its URL too."""
        port = self._ports.take()
        url = f"https://127.0.0.1:{port}"
        executable = str(self._built[MAKEWAY_SCHEDULER.name])
        ready = http_ok(f"{url}/readyz", unverified())
        kubeconfig = self._token("makeway-scheduler")
        more = [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
        more += [f"--secure-port={port}", "--bind-address=127.0.0.1"]
        return self._start("scheduler", executable, ready, more=more), url

    def start_replacing_scheduler(self) -> tuple[Process, str]:
        """Run makeway-scheduler as kubeadm's static pod would run it, as the user of its scheduler.conf."""
        port = self._ports.take()
        conf = self._directory / "scheduler.conf"
        access = yaml.safe_load(self._cluster.info.kubeconfig.read_text())
        access["users"][0]["user"]["as"] = "system:kube-scheduler"
        conf.write_text(yaml.safe_dump(access))
        file = self._directory / "scheduler.yaml"
        text = self.get("ConfigMap", "makeway-scheduler")["data"]["scheduler.yaml"]
        text = text.replace("/etc/kubernetes/scheduler.conf", str(conf))
        if (self.host / "etc/kubernetes/makeway").exists():
            text = text.replace("/etc/kubernetes/makeway", str(self.host / "etc/kubernetes/makeway"))
        for place in ("nats", "nats-client"):
            files = self._directory / "files" / place
            self._write_secret(files, {"secretName": "makeway-nats-scheduler"})
            text = text.replace(f" /etc/kubernetes/makeway/{place}/", f" {files}/")
        file.write_text(self._local(text))
        url = f"https://127.0.0.1:{port}"
        argv = [
            f"--config={file}",
            f"--authentication-kubeconfig={conf}",
            f"--authorization-kubeconfig={conf}",
        ]
        argv += [f"--secure-port={port}", "--bind-address=127.0.0.1"]
        return self.start(
            Program(
                name="kube-scheduler",
                argv=(str(self._built[MAKEWAY_SCHEDULER.name]), *argv),
                ready=http_ok(f"{url}/readyz", unverified()),
            )
        ), url

    def start_service(self, component: str) -> tuple[Process, str]:
        """Run a replica of the planner or the evictor; gives its URL too."""
        port = self._ports.take()
        url = f"http://127.0.0.1:{port}"
        executable = str(self._makeway)
        environment = {"KUBECONFIG": str(self._token(f"makeway-{component}"))}
        ready = http_ok(f"{url}/readyz")
        listen = [f"--listen=127.0.0.1:{port}"]
        return self._start(component, executable, ready, more=listen, extra=environment), url

    def start(self, program: Program) -> Process:
        """Run something beside the components, and wait until it is ready."""
        process = self._processes.start(program)
        process.wait_ready()
        return process

    def port(self) -> int:
        """A port of this machine that nobody else gets while the release runs."""
        return self._ports.take()

    def start_streams(self) -> Process:
        """Run what makes the Secrets and keeps the streams."""
        accounts = [one["metadata"]["name"] for one in self.manifests if one["kind"] == "Role"]
        extra = {"KUBECONFIG": str(self._token(_STREAMS))} if _STREAMS in accounts else {}
        return self._start("streams", str(self._makeway), lambda: "", extra=extra)

    def check(self) -> subprocess.CompletedProcess[str]:
        """Run what `helm test` runs, to its end."""
        argv, environment = self._command("check", f"makeway-check-{next(self._numbers)}")
        environment |= {**os.environ, "KUBECONFIG": str(self._token("makeway-check")), **environment}
        command = [str(self._makeway), *argv]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def log(self, process: Process) -> str:
        """Everything that a process has written."""
        return process.log.read_text()

    def stop(self) -> None:
        """End every process."""
        self._processes.stop()
        self._ports.release()

    def remove(self) -> None:
        """End every process, and delete all that was applied; wait until the namespace is gone."""
        self.stop()
        applied = [one for one in self.manifests if one["apiVersion"] not in _NOT_SERVED]
        delete = ("delete", "--ignore-not-found")
        self._cluster.owned.kubectl(*delete, "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(applied))
        self._cluster.owned.kubectl(*delete, "--timeout=60s", "namespace", NAMESPACE)

    def _start(
        self,
        component: str,
        executable: str,
        ready: Probe,
        *,
        more: Sequence[str] = (),
        extra: Mapping[str, str] | None = None,
    ) -> Process:
        name = f"makeway-{component}-{next(self._numbers)}"
        argv, environment = self._command(component, name)
        return self.start(
            Program(
                name=name,
                argv=(executable, *argv, *more),
                ready=ready,
                ready_seconds=60.0,
                base=component == "nats",
                environment={**(extra or {}), **environment, "PYTHONUNBUFFERED": "1"},
            )
        )

    def pods(self) -> Iterator[Manifest]:
        """The pods of all workloads, and the static pod where there is one."""
        for one in self.manifests:
            if one["kind"] in _WORKLOADS:
                yield one["spec"].get("template", one)
            elif static := one.get("data", {}).get("makeway-planner.yaml"):
                yield yaml.safe_load(static)

    def _command(self, component: str, name: str) -> tuple[list[str], dict[str, str]]:
        """The arguments and the environment of a component's container."""
        pod, container = next(
            (pod["spec"], one)
            for pod in self.pods()
            for one in pod["spec"]["containers"]
            if one["name"] == component
        )
        places = self._volumes(pod, container, name)
        environment = {
            one["name"]: self._replaced(self._local(self._value(one)), places)
            for one in container.get("env", [])
        }
        if token := places.get(_IN_POD):
            environment["KUBECONFIG"] = str(self._kubeconfig(Path(token), container["name"]))
        argv = [self._replaced(argument, places) for argument in container["args"]]
        return argv, environment

    def _value(self, variable: Mapping[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"])
        reference = variable["valueFrom"]["secretKeyRef"]
        return self.secret(reference["name"], reference["key"])[reference["key"]]

    def _volumes(self, pod: Mapping[str, Any], container: Mapping[str, Any], name: str) -> dict[str, str]:
        """Make a directory of each mounted volume; gives where each mount path is now."""
        sources = {volume["name"]: volume for volume in pod.get("volumes", [])}
        places = {
            mount["mountPath"]: self._directory / name / mount["name"]
            for mount in container.get("volumeMounts", [])
        }
        moved = {path: str(place) for path, place in places.items()}
        for mount in container.get("volumeMounts", []):
            place = places[mount["mountPath"]]
            place.mkdir(parents=True, exist_ok=True)
            source = sources.get(mount["name"], {})
            for one in (source, *source.get("projected", {}).get("sources", ())):
                if configmap := one.get("configMap"):
                    for key, text in self.get("ConfigMap", configmap["name"])["data"].items():
                        (place / key).write_text(self._replaced(self._adapted(text), moved))
                if secret := one.get("secret"):
                    self._write_secret(place, {"secretName": secret.get("name"), **secret})
            if directory := source.get("hostPath"):
                self._copy(self.host / directory["path"].removeprefix("/"), place, moved)
        return moved

    def _copy(self, directory: Path, place: Path, moved: Mapping[str, str]) -> None:
        """Copy a directory of the node, with what a container would see in another place."""
        shutil.copytree(directory, place, dirs_exist_ok=True)
        for file in place.rglob("*"):
            if file.is_file():
                file.write_text(self._replaced(self._adapted(file.read_text()), moved))

    def _write_secret(self, place: Path, source: Mapping[str, Any]) -> None:
        """Write the keys of a Secret that a volume names, else all, as a kubelet does."""
        place.mkdir(parents=True, exist_ok=True)
        data = self.secret(source["secretName"], *(item["key"] for item in source.get("items", [])))
        keys = [item["key"] for item in source.get("items", [])] or list(data)
        for key in keys:
            (place / key).write_text(data[key])

    def secret(self, name: str, *keys: str) -> dict[str, str]:
        """What a Secret of the API server's holds, once it is there with all keys, as a kubelet waits."""
        rendered = [
            one for one in self.manifests if (one["kind"], one["metadata"]["name"]) == ("Secret", name)
        ]
        wanted = {*keys, *(["token"] if rendered else [])}
        deadline = time.monotonic() + 60
        data: dict[str, str] = {}
        while not data or not wanted <= set(data):
            assert time.monotonic() < deadline, f"Secret {name} lacks {sorted(wanted - set(data))}"
            get = ("get", "secret", name, "-n", NAMESPACE, "--ignore-not-found", "-o", "json")
            found = self._cluster.owned.kubectl(*get)
            data = json.loads(found or "{}").get("data") or {}
            time.sleep(0 if data else 0.2)
        return {key: b64decode(value).decode() for key, value in data.items()}

    def _kubeconfig(self, directory: Path, name: str) -> Path:
        """What the files of a service account say that a pod finds."""
        path = directory / "kubeconfig"
        token = (directory / "token").read_text()
        write_with_token(path, self._cluster.info.server, directory / "ca.crt", token, name)
        return path

    def _adapted(self, text: str) -> str:
        """A configuration file with what only a pod has put in its place: addresses, and the API server."""
        text = self._local(text)
        for port, local in self._nats.items():
            text = re.sub(rf"\b(0\.0\.0\.0|127\.0\.0\.1):{port}\b", f"127.0.0.1:{local}", text)
        if "KubeSchedulerConfiguration" in text:
            text += f"\nclientConnection:\n  kubeconfig: {self._token('makeway-scheduler')}\n"
        return text

    def _local(self, text: str) -> str:
        near = rf"(makeway-nats\.{NAMESPACE}\.svc|127\.0\.0\.1):4222\b"
        return re.sub(near, f"127.0.0.1:{self._nats['4222']}", text)

    def _replaced(self, text: str, places: Mapping[str, str]) -> str:
        # The longest first: one may be the beginning of another.
        for path in sorted(places, key=len, reverse=True):
            text = text.replace(path, places[path])
        return text

    def _token(self, account: str) -> Path:
        """A kubeconfig with a token that the API server has issued for a service account."""
        info, api = self._cluster.info, self._cluster.owned.api
        path = self._directory / "tokens" / f"{account}.yaml"
        if not path.exists():
            token = api.token(NAMESPACE, account, _TOKEN_SECONDS)
            authority = info.directory / "pki" / "ca.pem"
            write_with_token(path, info.server, authority, token, account)
        return path
