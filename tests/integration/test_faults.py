"""What tests/faults has no plans for: who says that it leads, a clean stop, a definition that goes and comes back."""

from pathlib import Path

from cluster.core import Cluster

from .conftest import REPOSITORY, Namespace, OperatorProcess, wait_established, wait_for


def test_two_operators_one_writes_and_the_other_takes_over(
    operator: OperatorProcess, cluster: Cluster, namespace: Namespace, tmp_path: Path
) -> None:
    second = OperatorProcess(cluster, tmp_path).start("operator-1").wait_ready()

    def told_apart() -> list[OperatorProcess] | None:
        said = {says(each): each for each in (operator, second)}
        return [said[word] for word in sorted(said)] if said.keys() == {"ok: leader", "ok: standby"} else None

    try:
        # Whichever leads: where the machine stands still for as long as the Lease lasts, the other may take it.
        leader, standby = wait_for("one leader and one that stands by", told_apart, log=second.log)
        leader.kill()
        namespace.apply()
        namespace.wait("Ready", "True")
        wait_for("the other to lead", lambda: says(standby) == "ok: leader", log=standby.log)
    finally:
        second.stop()


def says(operator: OperatorProcess) -> str:
    """What an operator says of itself when it is ready."""
    return operator.probe("/readyz")[1].strip()


def test_a_clean_stop_hands_over_at_once(operator: OperatorProcess, cluster: Cluster, tmp_path: Path) -> None:
    wait_for("it to lead", lambda: says(operator) == "ok: leader", log=operator.log)
    assert operator.stop() == 0
    lease = cluster.reader.get("lease", "tandem-operator")
    assert lease is not None
    assert not lease["spec"].get("holderIdentity"), "it is given back: nobody need wait until it expires"
    second = OperatorProcess(cluster, tmp_path).start("operator-1")
    try:
        wait_for("the Lease", lambda: says(second) == "ok: leader", log=second.log)
        wait_for("leadership in the log", lambda: "holds the Lease" in second.log.read_text())
    finally:
        second.stop()


def test_a_crd_that_goes_and_comes_back(operator: OperatorProcess, cluster: Cluster, namespace: Namespace) -> None:
    """The watch of a kind that is gone answers 404, which ends kopf for good: it is started again."""
    namespace.apply()
    namespace.wait("Ready", "True")
    pid = operator.usage.pid
    crd = "speculativeinferenceservices.serving.tandem.dev"
    cluster.kubectl.run("delete", "crd", crd)
    wait_for("the truth", lambda: operator.probe("/readyz")[0] == 503, log=operator.log)
    cluster.kubectl.run("apply", "-f", str(REPOSITORY / "crds"))
    wait_established(cluster, crd)
    operator.wait_ready()
    namespace.apply()
    namespace.wait("Ready", "True")
    assert operator.usage.pid == pid
