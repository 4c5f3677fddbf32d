"""MPI between the pods of a group: how the leader reaches its workers, by ssh with keys of the service's own.

launch.json says {"group": {"hosts": PODS, "slots": RANKS of each}}, and its command is an mpirun with our hostfile.
LeaderWorkerSet tells the pods where they are (LWS_LEADER_ADDRESS, LWS_GROUP_SIZE) and gives the workers the
names LEADER-1, LEADER-2, ... in the leader's domain.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

KEYS = Path("/etc/tandem/ssh")
"""The Secret: `ssh-privatekey` and `ssh-publickey`, one pair for both sides of all groups of the service."""
FOLDER = Path("/tmp/tandem-group")
"""Working files; the renderer's mpirun reads `hostfile` in it."""
PORT = 2222
HOST_ALIAS = "tandem-group"
REPORT_SECONDS = 10.0


class GroupError(Exception):
    """The group cannot work together; the message says what is missing and what to do."""


def workers(environment: Mapping[str, str], hosts: int) -> list[str]:
    """Addresses of the workers of this leader's group. Raises GroupError.

    `hosts`: pods of a group, as the plan was made for.
    """
    address, size = environment.get("LWS_LEADER_ADDRESS", ""), environment.get("LWS_GROUP_SIZE", "")
    if not address or size != str(hosts):
        raise GroupError(
            f"this pod is no leader of {hosts} (LWS_LEADER_ADDRESS={address!r}, LWS_GROUP_SIZE={size!r}):"
            " it must run in the LeaderWorkerSet that was made for it"
        )
    pod, dot, domain = address.partition(".")
    return [f"{pod}-{index}{dot}{domain}" for index in range(1, hosts)]


def hostfile(others: Sequence[str], slots: int) -> str:
    """Open MPI's hostfile: the leader first, so that rank 0 is here."""
    return "".join(f"{host} slots={slots}\n" for host in ("localhost", *others))


def prepare(
    group: Mapping[str, int], environment: Mapping[str, str], keys: Path = KEYS, folder: Path = FOLDER
) -> dict[str, str]:
    """Wait for the workers, and write what mpirun needs; returns the variables that tell it. Raises GroupError."""
    others = workers(environment, group["hosts"])
    write_key(keys, folder)
    public = (keys / "ssh-publickey").read_text(encoding="utf-8").strip()
    (folder / "known_hosts").write_text(f"{HOST_ALIAS} {public}\n", encoding="utf-8")
    (folder / "ssh_config").write_text(ssh_config(folder), encoding="utf-8")
    (folder / "hostfile").write_text(hostfile(others, group["slots"]), encoding="utf-8")
    wait_for(others, answers)
    agent = f"ssh -F {folder / 'ssh_config'}"
    # The second pair is for Open MPI 5. The leader starts all daemons: workers have no way to each other.
    return {
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    }


def write_key(keys: Path, folder: Path) -> Path:
    """Copy the private key, since ssh refuses one that the group may read, as a Secret's. Raises GroupError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = folder / "key"
    key.unlink(missing_ok=True)
    try:
        text = (keys / "ssh-privatekey").read_bytes()
    except OSError as error:
        raise GroupError(
            f"{keys}/ssh-privatekey cannot be read ({error.strerror}): the service's Secret NAME-ssh-... must be"
            " mounted; delete the Secret and the operator makes another"
        ) from None
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    return key


def ssh_config(folder: Path) -> str:
    """The client's whole configuration: one key, one host key, no questions."""
    return "\n".join(
        [
            "Host *",
            f"  Port {PORT}",
            f"  IdentityFile {folder / 'key'}",
            "  IdentitiesOnly yes",
            "  PreferredAuthentications publickey",
            f"  HostKeyAlias {HOST_ALIAS}",
            f"  UserKnownHostsFile {folder / 'known_hosts'}",
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            "  BatchMode yes",
            "  ConnectTimeout 10",
            "  ConnectionAttempts 3",
            "  LogLevel ERROR",
            "",
        ]
    )


def wait_for(
    hosts: Sequence[str],
    is_up: Callable[[str], bool],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return when all hosts are up. The startup probe ends a wait that is in vain."""
    missing, reported = list(hosts), clock() - REPORT_SECONDS
    while missing := [host for host in missing if not is_up(host)]:
        if clock() - reported >= REPORT_SECONDS:
            reported = clock()
            print(f"waiting for {', '.join(missing)}", flush=True)
        sleep(1)


def answers(host: str) -> bool:
    """Whether the host's sshd takes connections."""
    try:
        with socket.create_connection((host, PORT), timeout=5):
            return True
    except OSError:
        return False


def program(name: str) -> str:
    """Absolute path of a program of the image. Raises GroupError."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if found is None:
        raise GroupError(f"the image has no {name}: groups need openssh-server, openssh-client and Open MPI in it")
    return found
