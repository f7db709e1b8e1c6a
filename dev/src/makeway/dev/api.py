"""A small synchronous client of the API server.

It is for what starting a cluster needs; tests and services have their own.
"""

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from makeway.dev.errors import DevError
from makeway.dev.pki import KeyPair

_TIMEOUT_SECONDS = 15.0


class AdminApi:
    """Requests of the cluster's administrator."""

    def __init__(self, server: str, authority: Path, client: KeyPair) -> None:
        self._server = server
        self.context = ssl.create_default_context(cafile=str(authority))
        self.context.load_cert_chain(client.certificate, client.key)

    def request(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """Send one request and give the decoded answer.

        Raises:
            DevError: the API server refused or could not be reached.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310
            self._server + path, data=data, method=method, headers={"Content-Type": content_type}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS, context=self.context) as answer:  # noqa: S310
                decoded: dict[str, Any] = json.loads(answer.read())
                return decoded
        except urllib.error.HTTPError as error:
            text = error.read(4000).decode(errors="replace")
            raise DevError(f"{method} {path}: the API server answered {error.code}: {text}") from error
        except OSError as error:
            raise DevError(f"{method} {path}: {error}") from error

    def apply(self, manifest: dict[str, Any]) -> None:
        """Create the object or make it as written (server-side apply)."""
        path = (
            f"{collection_path(manifest)}/{manifest['metadata']['name']}?fieldManager=makeway-dev&force=true"
        )
        self.request("PATCH", path, manifest, "application/apply-patch+yaml")

    def apply_file(self, path: Path) -> None:
        """Apply every document of a YAML file.

        Raises:
            DevError: a document was refused; the text names the file.
        """
        try:
            for document in yaml.safe_load_all(path.read_text()):
                if document:
                    self.apply(document)
        except DevError as error:
            raise DevError(f"{path}: {error}") from error

    def token(self, namespace: str, service_account: str, valid_seconds: int) -> str:
        """Issue a token of a service account (TokenRequest)."""
        answer = self.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": valid_seconds},
            },
        )
        token: str = answer["status"]["token"]
        return token


def collection_path(manifest: Mapping[str, Any]) -> str:
    """Return the URL path under which an object is created; its kind has a regular plural. Pure."""
    version, namespace = manifest["apiVersion"], manifest["metadata"].get("namespace")
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    kind = re.sub("y$", "ie", manifest["kind"].lower())
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{prefix}{f'/namespaces/{namespace}' if namespace else ''}/{plural}"
