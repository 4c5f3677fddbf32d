"""The configuration files of a real node, and the script that sets up its namespaces. Nothing runs here."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from cluster.addresses import Address, Network

CONFIG = Path("/var/lib/tandem")
"""Where the node's programs see their configuration."""

# The kubelet wants these and would set them for the whole machine; it is shown that they are so already.
KUBELET_SYSCTLS = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}


def setup_script(folder: Path, pause: Path) -> str:
    """Return what a node's first process runs (`sh -eu`) before it becomes ``pause``.

    Args:
        folder: the node's directory; ``folder/var`` becomes /var.
        pause: the program that stays and collects orphans.
    """
    lines = ["mount --make-rshared /"]  # volumes with mount propagation need it
    for name in KUBELET_SYSCTLS:
        source = shlex.quote(str(sysctl_file(folder, name)))
        lines.append(f"if [ -e /proc/sys/{name} ]; then mount --bind {source} /proc/sys/{name}; fi")
    lines.append(f"mount --bind {shlex.quote(str(folder / 'var'))} /var")
    lines.append("mount -t tmpfs -o mode=0755 tmpfs /run")
    lines.append(f"exec {shlex.quote(str(pause))}")
    return "\n".join(lines)


def sysctl_file(folder: Path, name: str) -> Path:
    """Return the file that stands for sysctl ``name`` in the node."""
    return folder / "sysctl" / name.replace("/", ".")


def containerd_config(pause_image: str, cni_plugins: Path) -> str:
    """Return containerd's configuration, in the version that 1.6 and all later ones read."""
    return f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image}"
  restrict_oom_score_adj = true  # lowering it needs CAP_SYS_RESOURCE
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{cni_plugins}"
  conf_dir = "{CONFIG}/cni"
"""


def cni_config(pods: Network) -> str:
    """Return the list of CNI plugins: a bridge with addresses from ``pods``, and host ports."""
    ranges = [[{"subnet": str(pods)}]]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": ranges,
            "routes": [{"dst": "::/0" if pods.version == 6 else "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "tandem", "plugins": [bridge, portmap]}, indent=2)


def kubelet_config(dns: Address, cgroup: str) -> dict[str, Any]:
    """Return the kubelet's configuration.

    Args:
        dns: where pods look names up.
        cgroup: the control group below which all pods are.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{CONFIG}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{CONFIG}/kubelet.crt",
        "tlsPrivateKeyFile": f"{CONFIG}/kubelet.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [str(dns)],
        "clusterDomain": "cluster.local",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "oomScoreAdj": 0,
        # The disk is the user's, full as it may be: never evict or delete images for it.
        "evictionHard": {
            "memory.available": "64Mi",
            **{f"{signal}.{left}": "0%" for signal in ("nodefs", "imagefs") for left in ("available", "inodesFree")},
        },
        "imageGCHighThresholdPercent": 100,
        # Of a minute: a Secret that changes is in its pods' volumes so late.
        "syncFrequency": "10s",
        # Of at most 300 s: what fails, or is killed, is started again at once.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }


def kube_proxy_config(name: str, address: Address, pods: Network) -> dict[str, Any]:
    """Return kube-proxy's configuration; ``pods`` are all pods of the cluster."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": name,
        "bindAddress": str(address),
        "clusterCIDR": str(pods),  # what comes from elsewhere is masqueraded, so that answers come back
        "clientConnection": {"kubeconfig": f"{CONFIG}/kube-proxy.kubeconfig"},
        # Zero leaves these alone: they belong to the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "oomScoreAdj": 0,
    }


def corefile(address: Address) -> str:
    """Return CoreDNS's configuration: the cluster's names at ``address``; other names are refused."""
    return f""".:53 {{
  bind {address}
  errors
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {CONFIG}/coredns.kubeconfig
    pods insecure
    ttl 5
  }}
}}
"""
