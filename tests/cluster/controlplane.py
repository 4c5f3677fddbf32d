"""The control plane's programs: their command lines and files. Nothing is started here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster import files, pki
from cluster.addresses import Addresses, shown
from cluster.kubeconfig import Access
from cluster.processes import Program

BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
APISERVER_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
    "127.0.0.1",
    "::1",
)

REQUESTS_PER_SECOND = 200
"""Of each controller and of the scheduler: by default 20, and 50, which hundreds of pods wait for."""
HPA_SYNC_SECONDS = 1
"""Between two looks of an autoscaler, which are 15 s by default: tests wait less."""

# Every request is logged once, when answered, with its user but without bodies.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True)
class ControlPlane:
    """Renders the programs of one cluster from its folder, addresses and binaries."""

    name: str
    folder: Path
    addresses: Addresses
    binaries: dict[str, Path]

    @property
    def pki(self) -> Path:
        """Where keys and certificates are."""
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One JSON object a line for each request that the API server answered."""
        return self.folder / "logs" / "audit.log"

    @property
    def local_server(self) -> str:
        """The API server's URL on this host."""
        return f"https://{shown(self.addresses.loopback)}:{self.addresses.apiserver_port}"

    @property
    def node_server(self) -> str:
        """The API server's URL on the cluster's bridge."""
        return f"https://{shown(self.addresses.host)}:{self.addresses.apiserver_port}"

    @property
    def access(self) -> Access:
        """What writes kubeconfigs that this cluster accepts."""
        return Access(pki.load_authority(self.pki, "ca"), self.name)

    def prepare(self) -> None:
        """Write certificates, kubeconfigs and configuration; what is there already is kept."""
        self.pki.mkdir(parents=True, exist_ok=True)
        self.pki.chmod(0o700)
        pki.service_account_keys(self.pki)
        names = (*APISERVER_NAMES, str(self.addresses.host), str(self.addresses.kubernetes_service))
        serving = pki.Identity("kube-apiserver", ("system:masters",), names)
        pki.issue(pki.load_authority(self.pki, "ca"), "apiserver", serving)
        pki.issue(pki.load_authority(self.pki, "front-proxy-ca"), "front-proxy", pki.Identity("front-proxy"))
        local = ("localhost", "127.0.0.1")
        pki.issue(pki.load_authority(self.pki, "etcd-ca"), "etcd", pki.Identity("etcd", names=local))
        access = self.access
        access.write(self.kubeconfig, self.local_server, pki.Identity("kubernetes-admin", ("system:masters",)))
        for component in ("kube-controller-manager", "kube-scheduler"):
            access.write(self._client(component), self.local_server, pki.Identity(f"system:{component}"))
        files.write(self.folder / "audit-policy.yaml", yaml.safe_dump(AUDIT_POLICY))

    def _client(self, component: str) -> Path:
        return self.folder / "clients" / f"{component}.kubeconfig"

    def programs(self, *, reachable: bool) -> list[Program]:
        """Return the programs in the order to start them.

        Args:
            reachable: listen on all addresses, for real nodes; the network's guard lets only them in.
        """
        return [self._etcd(), self._apiserver(reachable), self._controller_manager(), self._scheduler()]

    def _program(self, name: str, **flags: object) -> Program:
        arguments = (f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items())
        return Program(name, (str(self.binaries[name]), *arguments))

    def _etcd(self) -> Program:
        client = f"https://127.0.0.1:{self.addresses.etcd_port}"
        # One member: nobody calls the peer address, but etcd wants one.
        peer = f"http://127.0.0.1:{self.addresses.etcd_peer_port}"
        return self._program(
            "etcd",
            data_dir=self.folder / "etcd",
            listen_client_urls=client,
            advertise_client_urls=client,
            listen_peer_urls=peer,
            initial_advertise_peer_urls=peer,
            initial_cluster=f"default={peer}",
            cert_file=self.pki / "etcd.crt",
            key_file=self.pki / "etcd.key",
            client_cert_auth="true",
            trusted_ca_file=self.pki / "etcd-ca.crt",
            unsafe_no_fsync="true",  # survives the death of etcd, not that of the machine
            log_level="warn",
        )

    def _apiserver(self, reachable: bool) -> Program:
        at, keys = self.addresses, self.pki
        return self._program(
            "kube-apiserver",
            bind_address=at.everywhere if reachable else at.loopback,
            advertise_address=at.host,
            secure_port=at.apiserver_port,
            service_cluster_ip_range=at.services,
            etcd_servers=f"https://127.0.0.1:{at.etcd_port}",
            etcd_cafile=keys / "etcd-ca.crt",
            etcd_certfile=keys / "etcd.crt",
            etcd_keyfile=keys / "etcd.key",
            tls_cert_file=keys / "apiserver.crt",
            tls_private_key_file=keys / "apiserver.key",
            client_ca_file=keys / "ca.crt",
            kubelet_certificate_authority=keys / "ca.crt",
            kubelet_client_certificate=keys / "apiserver.crt",
            kubelet_client_key=keys / "apiserver.key",
            kubelet_preferred_address_types="InternalIP",  # node names are not in any DNS
            authorization_mode="Node,RBAC",
            # The second one is on in OpenShift: who may not delete an object may not set its owner.
            enable_admission_plugins="NodeRestriction,OwnerReferencesPermissionEnforcement",
            service_account_issuer="https://kubernetes.default.svc.cluster.local",
            service_account_key_file=keys / "sa.pub",
            service_account_signing_key_file=keys / "sa.key",
            allow_privileged="true",
            # Aggregated APIs and webhooks are called at their endpoints: works without a kube-proxy too.
            enable_aggregator_routing="true",
            audit_policy_file=self.folder / "audit-policy.yaml",
            audit_log_path=self.audit_log,
            **self._aggregation(),
        )

    def _aggregation(self) -> dict[str, object]:
        """Return the flags by which aggregated API servers (custom metrics) trust this one."""
        return {
            "requestheader_client_ca_file": self.pki / "front-proxy-ca.crt",
            "requestheader_allowed_names": "front-proxy",
            "requestheader_extra_headers_prefix": "X-Remote-Extra-",
            "requestheader_group_headers": "X-Remote-Group",
            "requestheader_username_headers": "X-Remote-User",
            "proxy_client_cert_file": self.pki / "front-proxy.crt",
            "proxy_client_key_file": self.pki / "front-proxy.key",
        }

    def _controller_manager(self) -> Program:
        kubeconfig = self._client("kube-controller-manager")
        return self._program(
            "kube-controller-manager",
            kubeconfig=kubeconfig,
            secure_port=0,
            leader_elect="false",  # there is one
            kube_api_qps=REQUESTS_PER_SECOND,
            kube_api_burst=REQUESTS_PER_SECOND,
            use_service_account_credentials="true",
            root_ca_file=self.pki / "ca.crt",
            service_account_private_key_file=self.pki / "sa.key",
            cluster_signing_cert_file=self.pki / "ca.crt",
            cluster_signing_key_file=self.pki / "ca.key",
            horizontal_pod_autoscaler_sync_period=f"{HPA_SYNC_SECONDS}s",
            flex_volume_plugin_dir=self.folder / "volumeplugins",  # it makes this directory, by default in /usr
        )

    def _scheduler(self) -> Program:
        kubeconfig = self._client("kube-scheduler")
        return self._program(
            "kube-scheduler",
            kubeconfig=kubeconfig,
            secure_port=0,
            leader_elect="false",
            kube_api_qps=REQUESTS_PER_SECOND,
            kube_api_burst=REQUESTS_PER_SECOND,
        )
