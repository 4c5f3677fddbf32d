"""An admission webhook that lets requests in together: whoever wrote them had looked before another's came in."""

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cluster import pki
from cluster.core import Cluster

SECONDS = 14
"""After which a request that stayed alone is refused, as by a webhook that fails: its writer tries again. The API
server waits for a webhook for 30 s at most."""


@contextmanager
def created_at_once(cluster: Cluster, folder: Path, resource: str, namespace: str, number: int) -> Iterator[None]:
    """The first creations of a resource in a namespace wait for each other: `number` of them are let in together.

    Raises:
        AssertionError: there were fewer.
    """
    together = threading.Barrier(number, timeout=SECONDS)
    met = threading.Event()

    def with_others() -> None:
        if not met.is_set():
            try:
                together.wait()
            except threading.BrokenBarrierError:
                together.reset()  # for the next tries
                raise
            met.set()

    authority = pki.load_authority(folder, "webhook-ca")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _allowing(with_others))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pki.issue(authority, "webhook", pki.Identity("webhook", names=("127.0.0.1",))))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    manifest = _configuration(f"https://127.0.0.1:{server.server_port}/", authority, resource, namespace)
    try:
        cluster.kubectl.run("apply", "-f", "-", stdin=json.dumps(manifest))
        yield
        assert met.is_set(), f"of {resource} in {namespace} there were no {number} at once"
    finally:
        cluster.kubectl.run("delete", "validatingwebhookconfiguration", "at-once", "--ignore-not-found")
        server.shutdown()
        server.server_close()


def _allowing(before: Callable[[], None]) -> type[BaseHTTPRequestHandler]:
    """Handlers of a webhook that calls `before`, and allows what is asked for unless that raises."""

    class Handler(BaseHTTPRequestHandler):
        """Answers AdmissionReviews: all are allowed.

        https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
        """

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            before()
            allowed = {"uid": review["request"]["uid"], "allowed": True}
            body = json.dumps({**review, "request": None, "response": allowed}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler


def _configuration(url: str, authority: pki.Authority, resource: str, namespace: str) -> dict[str, Any]:
    webhook = {
        "name": "at-once.example.com",
        "clientConfig": {"url": url, "caBundle": b64encode(authority.path.read_bytes()).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "timeoutSeconds": 2 * SECONDS,
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "at-once"},
        "webhooks": [webhook],
    }
