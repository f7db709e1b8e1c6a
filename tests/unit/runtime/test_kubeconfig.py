"""Kubeconfigs of every form that kubectl reads, and what is said of those that cannot be used."""

import base64
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from makeway.runtime import kube_access
from makeway.runtime.kube import ConfigurationError
from makeway.runtime.kube_access import Access, load_access

SERVER = {"server": "https://10.0.0.1:6443/"}


def kubeconfig(path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster or SERVER}],
        "users": [{"name": "u", "user": user}],
        **more,
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def loaded(*paths: Path, context: str | None = None) -> Access:
    return await load_access(os.pathsep.join(map(str, paths)), context)


async def renew(access: Access) -> None:
    access.expire()
    await access.auth_settings()


def authorization(access: Access) -> str | None:
    found: str | None = access.api_key.get("BearerToken")
    return found


def content(path: str | None) -> str:
    assert path is not None
    return Path(path).read_text()


def status_of(configuration: Access) -> os.stat_result:
    assert configuration.key_file is not None
    return Path(configuration.key_file).stat()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def program(tmp_path: Path, status: dict[str, Any] | str, ends_with: int = 0) -> Path:
    """A program that writes down what it was told, and says a credential."""
    answer = status if isinstance(status, str) else json.dumps(credential(status))
    script = tmp_path / "bin" / "login"
    script.parent.mkdir(exist_ok=True)
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$KUBERNETES_EXEC_INFO $REGION $1" >> {tmp_path}/told\n'
        f"cat <<'END'\n{answer}\nEND\necho no ticket >&2\nexit {ends_with}\n"
    )
    script.chmod(0o755)
    return script


def credential(status: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}


def by_program(command: str, **more: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, **more}}


async def test_of_several_files_the_first_that_says_something_wins(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "a", {"token": "first"})
    second = kubeconfig(
        tmp_path / "b",
        {"token": "second"},
        {"server": "https://other"},
        **{
            "current-context": "there",
            "contexts": [{"name": "there", "context": {"cluster": "c", "user": "v"}}],
            "users": [{"name": "v", "user": {"token": "of v"}}],
        },
    )

    here = await loaded(tmp_path / "none", first, second)
    there = await loaded(first, second, context="there")

    assert (here.host, authorization(here)) == ("https://10.0.0.1:6443", "Bearer first")
    assert (there.host, authorization(there)) == ("https://10.0.0.1:6443", "Bearer of v")


async def test_data_goes_before_files_and_paths_begin_at_their_own_file(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "ca.crt").write_text("authority")
    (tmp_path / "conf" / "token").write_text("from a file\n")
    user = {
        "client-certificate": "none",
        "client-certificate-data": encoded("certificate"),
        "client-key-data": encoded("key"),
        "tokenFile": "token",
        "token": "old",
    }
    cluster = {
        **SERVER,
        "certificate-authority": "ca.crt",
        "tls-server-name": "kubernetes",
        "proxy-url": "http://proxy:3128",
    }

    found = await loaded(kubeconfig(tmp_path / "conf" / "config", user, cluster))

    assert found.ssl_ca_cert == str(tmp_path / "conf" / "ca.crt")
    assert (content(found.cert_file), content(found.key_file)) == ("certificate", "key")
    assert status_of(found).st_mode & 0o077 == 0
    assert authorization(found) == "Bearer from a file"
    assert (found.tls_server_name, found.proxy) == ("kubernetes", "http://proxy:3128")
    assert found.verify_ssl


async def test_a_renewal_leaves_files_alone_whose_content_is_the_same(tmp_path: Path) -> None:
    configuration = await loaded(kubeconfig(tmp_path / "config", {"client-key-data": encoded("key")}))
    before = status_of(configuration)

    await renew(configuration)

    after = status_of(configuration)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


async def test_entries_of_the_same_names_in_two_files_do_not_share_their_keys(tmp_path: Path) -> None:
    first = await loaded(kubeconfig(tmp_path / "first", {"client-key-data": encoded("the first's")}))
    second = await loaded(kubeconfig(tmp_path / "second", {"client-key-data": encoded("the second's")}))

    assert (content(first.key_file), content(second.key_file)) == ("the first's", "the second's")


async def test_a_token_file_is_read_again_at_each_renewal(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    configuration = await loaded(kubeconfig(tmp_path / "config", {"tokenFile": str(token)}))

    token.write_text("two")
    await renew(configuration)

    assert authorization(configuration) == "Bearer two"


async def test_a_user_with_a_password_and_one_with_nothing(tmp_path: Path) -> None:
    basic = await loaded(kubeconfig(tmp_path / "a", {"username": "me", "password": "pw"}))
    nothing = await loaded(kubeconfig(tmp_path / "b", {}))

    assert authorization(basic) == f"Basic {encoded('me:pw')}"
    assert authorization(nothing) is None


async def test_a_program_is_told_of_the_cluster_and_asked_again_when_its_token_ends(tmp_path: Path) -> None:
    soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    program(tmp_path, {"token": "t", "expirationTimestamp": soon})
    user = by_program(
        "./bin/login",
        args=["--cluster"],
        env=[{"name": "REGION", "value": "north"}],
        provideClusterInfo=True,
        interactiveMode="Never",
    )
    cluster = {**SERVER, "certificate-authority-data": encoded("authority")}

    configuration = await loaded(kubeconfig(tmp_path / "config", user, cluster))
    await renew(configuration)

    told = (tmp_path / "told").read_text().splitlines()
    spec = json.loads(told[0].rsplit(" ", 2)[0])["spec"]
    assert authorization(configuration) == "Bearer t"
    assert len(told) == 2
    assert told[0].endswith("} north --cluster")
    assert spec["interactive"] is False
    assert spec["cluster"]["server"] == "https://10.0.0.1:6443"
    assert spec["cluster"]["certificate-authority-data"] == encoded("authority")


async def test_a_program_is_not_asked_while_what_it_said_holds_and_is_taken(tmp_path: Path) -> None:
    late = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    login = program(tmp_path, {"token": "revoked", "expirationTimestamp": late})
    found = await loaded(kubeconfig(tmp_path / "config", by_program(str(login))))

    found._fresh_until = 0.0
    await found.auth_settings()
    assert len((tmp_path / "told").read_text().splitlines()) == 1

    program(tmp_path, {"token": "new", "expirationTimestamp": late})
    await renew(found)
    assert authorization(found) == "Bearer new"


async def test_a_program_may_say_a_certificate(tmp_path: Path) -> None:
    login = program(tmp_path, {"clientCertificateData": "certificate", "clientKeyData": "key"})

    found = await loaded(kubeconfig(tmp_path / "config", by_program(str(login))))

    assert authorization(found) is None
    assert (content(found.cert_file), content(found.key_file)) == ("certificate", "key")


async def test_a_certificate_of_a_program_is_renewed_in_its_place(tmp_path: Path) -> None:
    login = program(tmp_path, {"clientCertificateData": "one", "clientKeyData": "key"})
    found = await loaded(kubeconfig(tmp_path / "config", by_program(str(login))))
    before = found.cert_file

    program(tmp_path, {"clientCertificateData": "two", "clientKeyData": "key"})
    await renew(found)

    assert (found.cert_file, content(found.cert_file)) == (before, "two")


def ends(pid: str) -> bool:
    """Report whether a process ends within seconds; one that is not waited for has no command line."""
    process = Path("/proc", pid, "cmdline")
    for _ in range(500):
        if not process.exists() or not process.read_bytes():
            return True
        time.sleep(0.01)
    return False


async def test_a_program_that_hangs_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_access, "RENEWAL_SECONDS", 0.2)
    login = program(tmp_path, {"token": "t"})
    login.write_text(f"#!/bin/sh\nsleep 100 & echo $! > {tmp_path}/pid\nwait\n")

    with pytest.raises(ConfigurationError, match=r"login, the program of user u, said nothing in 0 s"):
        await loaded(kubeconfig(tmp_path / "config", by_program(str(login), interactiveMode="Never")))

    assert ends((tmp_path / "pid").read_text().strip())


async def test_an_empty_file_is_passed_over_and_an_empty_field_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nothing\n")
    user = {"client-certificate": "", "token": "t"}

    found = await loaded(tmp_path / "empty", kubeconfig(tmp_path / "config", user))

    assert (authorization(found), found.cert_file) == ("Bearer t", None)


async def test_a_context_without_a_user_is_anonymous_and_a_missing_user_is_named(tmp_path: Path) -> None:
    def context(user: dict[str, str]) -> dict[str, Any]:
        return {"contexts": [{"name": "here", "context": {"cluster": "c", **user}}]}

    anonymous = await loaded(kubeconfig(tmp_path / "a", {"token": "t"}, **context({})))
    assert authorization(anonymous) is None

    with pytest.raises(ConfigurationError, match="there is no user gone"):
        await loaded(kubeconfig(tmp_path / "b", {"token": "t"}, **context({"user": "gone"})))


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({}, {"certificate-authority": "x"}, "cluster c has no server"),
        ({}, {**SERVER, "insecure-skip-tls-verify": "false"}, "of cluster c is neither true nor false"),
        ({"client-certificate": "gone.crt"}, None, "File does not exists: .*gone.crt"),
        ({"tokenFile": "gone"}, None, "tokenFile of user u cannot be read"),
        ({"token": 5}, None, "not as a kubeconfig is"),
        ({"auth-provider": {"name": "oidc"}}, None, "auth-provider oidc of user u is not used here"),
        ({"exec": {"command": "login"}}, None, "exec: .*missing key 'apiVersion'"),
        (by_program("no-such-login", installHint="Get it from example.com"), None, "no-such.*Get it from"),
    ],
)
async def test_what_cannot_be_used_is_named(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any] | None, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        await loaded(kubeconfig(tmp_path / "config", user, cluster))


@pytest.mark.parametrize(
    ("status", "ends_with", "said"),
    [
        ({"token": "t"}, 3, "ended with 3: no ticket"),
        ("hello", 0, "said no ExecCredential"),
        ('{"apiVersion": "client.authentication.k8s.io/v1beta1", "status": {}}', 0, "answers .*v1beta1, not"),
        ({}, 0, "neither a token nor a certificate"),
        ({"clientCertificateData": "c"}, 0, "without its key"),
    ],
)
async def test_what_a_program_does_wrong_is_named(
    tmp_path: Path, status: dict[str, Any] | str, ends_with: int, said: str
) -> None:
    login = program(tmp_path, status, ends_with)

    with pytest.raises(ConfigurationError, match=said):
        await loaded(kubeconfig(tmp_path / "config", by_program(str(login))))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not YAML"),
        ("- a", "is not a kubeconfig"),
        ("contexts: []", "no current-context"),
        ("current-context: gone", "there is no context gone"),
    ],
)
async def test_a_file_that_is_none_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config").write_text(text)

    with pytest.raises(ConfigurationError, match=said):
        await loaded(tmp_path / "config")
