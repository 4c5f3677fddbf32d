"""KEDA's own programs, on this host, with the rights that its manifests give them; what they ask for is real."""

import base64
import json
import os
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from cluster import binaries, pki
from cluster.core import Cluster
from cluster.ports import free_port
from integration.conftest import wait_established, wait_for
from integration.metrics_server import behind_service

PROGRAMS = ("keda-operator", "keda-adapter", "keda-admission-webhooks")
NAMESPACE, ACCOUNT = "keda", "keda-operator"
APISERVICE = "v1beta1.external.metrics.k8s.io"
SERVICES = {"keda-metrics-apiserver": "keda-adapter", "keda-admission-webhooks": "keda-admission-webhooks"}
"""Services through which the API server asks, and the programs behind them."""
MANIFESTS = (
    "general/namespace.yaml",
    "service_account/service_account.yaml",
    "rbac/role.yaml",
    "rbac/role_binding.yaml",
    "metrics-server/role.yaml",
    "metrics-server/role_binding.yaml",
    "metrics-server/service.yaml",
    "webhooks/service.yaml",
)
"""Of KEDA's config/, beside the definitions: all but its Deployments, which nobody would run here."""


class Keda:
    """An installation of KEDA in a cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.binaries = binaries.ensure(PROGRAMS, print)
        self.config = self.binaries["keda-operator"].parent / "config"
        self.ports = {program: free_port() for program in PROGRAMS}
        names = [f"{service}.{NAMESPACE}.svc" for service in SERVICES]
        authority = pki.load_authority(folder, "ca")
        pki.issue(authority, "tls", pki.Identity("keda", names=("localhost", *names)))

    def install(self) -> None:
        """Definitions, rights, and where the API server asks for external metrics."""
        kubectl = self.cluster.kubectl
        kubectl.run("apply", "--server-side", "-k", str(self.config / "crd"))
        for crd in ("scaledobjects.keda.sh", "clustertriggerauthentications.keda.sh"):
            wait_established(self.cluster, crd)
        for manifest in MANIFESTS:
            kubectl.run("apply", "--server-side", "-f", str(self.config / manifest))
        for service, program in SERVICES.items():
            behind_service(self.cluster, NAMESPACE, service, self.ports[program])
        self._apply(self._api_service())
        token = kubectl.run("-n", NAMESPACE, "create", "token", ACCOUNT).strip()
        config = yaml.safe_load(self.cluster.kubeconfig.read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": token}
        self.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")

    @property
    def kubeconfig(self) -> Path:
        """With the rights of KEDA's ServiceAccount."""
        return self.folder / "kubeconfig"

    def log(self, program: str) -> Path:
        """What a program says."""
        return self.folder / f"{program}.log"

    @contextmanager
    def admitting(self) -> Iterator[None]:
        """The admission webhooks, asked for each of KEDA's objects."""
        program = "keda-admission-webhooks"
        port = self.ports[program]
        flags = {"port": port, "metrics-bind-address": 0, "health-probe-bind-address": 0, "cert-dir": self.folder}
        with self._process(program, flags, {}):
            wait_for("the webhooks", lambda: _listens(port), 60, self.log(program))
            self._apply(self._webhooks())
            yield

    @contextmanager
    def scaling(self, trusted: Path, routes: Mapping[str, int], audiences: list[dict[str, str]]) -> Iterator[None]:
        """Operator and metrics adapter. `trusted`: a folder of authorities, as KEDA's chart mounts `caSecrets`;
        `routes`: ports of this host by `name:port` of Services; `audiences`: as KEDA's chart takes them from values.
        """
        with ExitStack() as stack:
            # No proxy is asked for addresses of this host, so that the API server and Prometheus are asked directly.
            proxy = {"HTTPS_PROXY": stack.enter_context(tunnel(routes)), "NO_PROXY": "127.0.0.1"}
            own = {**proxy, "KEDA_SERVICE_ACCOUNT_TOKEN_AUDIENCES": json.dumps(audiences)}
            stack.enter_context(self._process("keda-operator", self._operator(trusted), own))
            port = self.ports["keda-operator"]
            wait_for("KEDA's operator", lambda: _listens(port), 60, self.log("keda-operator"))
            stack.enter_context(self._process("keda-adapter", self._adapter(), {}))
            wait_for("external metrics", self._available, 90, self.log("keda-adapter"))
            yield

    # Flags as in config/, but for addresses, and for files where KEDA would make its certificates itself.
    def _operator(self, trusted: Path) -> dict[str, object]:
        return {
            "metrics-service-bind-address": f"127.0.0.1:{self.ports['keda-operator']}",
            "metrics-bind-address": 0,
            "health-probe-bind-address": 0,
            "cert-dir": self.folder,
            "ca-dir": trusted,
        }

    def _adapter(self) -> dict[str, object]:
        asking = ("lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return {
            "secure-port": self.ports["keda-adapter"],
            "port": free_port(),
            "metrics-service-address": f"localhost:{self.ports['keda-operator']}",
            "client-ca-file": self.folder / "ca.crt",
            "tls-cert-file": self.folder / "tls.crt",
            "tls-private-key-file": self.folder / "tls.key",
            "cert-dir": self.folder,
            **dict.fromkeys(asking, self.kubeconfig),
        }

    def _api_service(self) -> dict[str, Any]:
        manifest = self._read("metrics-server/api_service.yaml")
        manifest["spec"]["caBundle"] = self._authority()
        return manifest

    def _webhooks(self) -> dict[str, Any]:
        manifest = self._read("webhooks/validation_webhooks.yaml")
        for webhook in manifest["webhooks"]:
            webhook["clientConfig"]["caBundle"] = self._authority()
            webhook["failurePolicy"] = "Fail"  # not Ignore: nothing passes unseen
        return manifest

    def _read(self, path: str) -> dict[str, Any]:
        manifest: dict[str, Any] = yaml.safe_load((self.config / path).read_text(encoding="utf-8"))
        return manifest

    def _authority(self) -> str:
        return base64.b64encode((self.folder / "ca.crt").read_bytes()).decode()

    def _apply(self, manifest: dict[str, Any]) -> None:
        self.cluster.kubectl.run("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def _available(self) -> bool:
        return self.cluster.kubectl.works(
            "wait", "--for=condition=Available", f"apiservice/{APISERVICE}", "--timeout=1s"
        )

    @contextmanager
    def _process(self, program: str, flags: Mapping[str, object], own: Mapping[str, str]) -> Iterator[None]:
        namespaces = {"POD_NAMESPACE": NAMESPACE, "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE, "WATCH_NAMESPACE": ""}
        environment = {**os.environ, **namespaces, "KUBECONFIG": str(self.kubeconfig), **own}
        command = [str(self.binaries[program]), *(f"--{flag}={value}" for flag, value in flags.items())]
        with self.log(program).open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, self.log(program).read_text(encoding="utf-8")[-3000:]
        finally:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextmanager
def tunnel(routes: Mapping[str, int]) -> Iterator[str]:
    """The URL of a proxy (CONNECT) that knows the names of Services: this host has none of the cluster's DNS."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            name = self.rfile.readline().split()[1].decode()
            while self.rfile.readline().strip():
                pass
            if name not in routes:
                self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            with socket.create_connection(("127.0.0.1", routes[name])) as far:
                self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=_pass_on, args=(far, self.connection), daemon=True)
                back.start()
                _pass_on(self.connection, far)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
