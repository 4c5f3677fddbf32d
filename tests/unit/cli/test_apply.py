"""`tandem apply`: what is sent, what is shown while it waits, and how it ends; a fake kubectl answers."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from support import images
from support.services import QUICKSTART
from tandem.cli import app, apply
from tandem.cli.known_settings import of_operator

TIME = "2026-01-01T09:00:00Z"
OTHER = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}}


def condition(kind: str, message: str, value: str = "True", reason: str = "R") -> dict[str, str]:
    return {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": TIME}


def service(*conditions: dict[str, str], observed: int = 2) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load(QUICKSTART)
    raw["metadata"] = {"name": "svc", "namespace": "team-a", "generation": 2, "uid": "u"}
    return {**raw, "status": {"observedGeneration": observed, "conditions": [*conditions]}}


ACCEPTED = condition("SpecAccepted", "profile reference")
DOWNLOADING = condition("Ready", "Downloading: 1.20 of 12.00 GB (10 %)", "False", "DownloadRunning")
READY = condition("Ready", "1 of 1 servers answer", "True", "ServersAnswer")
GOING_ON = condition("Reconciling", "Downloading: 1.20 of 12.00 GB (10 %)", "True", "DownloadRunning")
STALLED = condition("Stalled", "no tokenizer in the folder: name another", "True", "NoTokenizer")


class Kubectl:
    """A `kubectl` that answers `get` with services in turn, the last one for ever, and keeps what is applied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        script = f"""#!/bin/bash
cd {folder}; echo "$@" >> calls
case " $* " in
*" configmaps "*) cat settings.json 2>/dev/null || echo '{{"items": []}}';;
*" apply "*) cat > applied; [ -e refusal ] && {{ cat refusal >&2; exit 1; }}; cat applied;;
*" get "*) for i in 0 1 2 3 4 5; do [ -e $i.json ] && {{ mv $i.json now; break; }}; done
  [ -s now ] || {{ echo 'Error from server (NotFound): x "svc" not found' >&2; exit 1; }}
  cat now;;
esac
"""
        (folder / "kubectl").write_text(script, encoding="utf-8")
        (folder / "kubectl").chmod(0o755)

    def answers(self, *services: dict[str, Any] | None) -> None:
        for number, each in enumerate(services):
            (self.folder / f"{number}.json").write_text(json.dumps(each) if each else "", encoding="utf-8")

    def settings(self, **settings: Any) -> None:
        meta = {"namespace": "tandem-system", "name": "tandem-operator-settings"}
        found = {"items": [{"metadata": meta, "data": {"settings.yaml": yaml.safe_dump(settings)}}]}
        (self.folder / "settings.json").write_text(json.dumps(found), encoding="utf-8")

    def applied(self) -> list[dict[str, Any]]:
        return list(json.loads((self.folder / "applied").read_text(encoding="utf-8"))["items"])

    def calls(self) -> str:
        return (self.folder / "calls").read_text(encoding="utf-8")


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    fake = Kubectl(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(fake.folder), prepend=":")
    monkeypatch.setattr(apply, "POLL_SECONDS", 0.01)
    return fake


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A service in the API server's namespace and an object of another kind."""
    raw = service()
    del raw["status"]
    made = tmp_path / "all.yaml"
    made.write_text(yaml.safe_dump_all([OTHER, raw]), encoding="utf-8")
    return made


def test_all_objects_are_applied_in_their_order(kubectl: Kubectl, file: Path) -> None:
    kubectl.settings(**images.SETTINGS)
    done = CliRunner().invoke(app, ["apply", "-f", str(file), "-n", "team-a"])
    assert (done.exit_code, done.stderr) == (0, "")
    assert [each["kind"] for each in kubectl.applied()] == ["Secret", "SpeculativeInferenceService"]
    (sent,) = [call for call in kubectl.calls().splitlines() if " apply" in f" {call}"]
    assert "--namespace team-a --server-side --field-manager=tandem-apply" in sent
    assert "--force-conflicts" not in sent


def test_a_file_may_have_other_kinds_alone(kubectl: Kubectl, file: Path) -> None:
    other = file.with_name("other.json")
    other.write_text(json.dumps(OTHER), encoding="utf-8")
    done = CliRunner().invoke(app, ["apply", "-f", str(other), "-f", str(file)])
    assert done.exit_code == 0, done.stderr
    assert [each["kind"] for each in kubectl.applied()] == ["Secret", "Secret", "SpeculativeInferenceService"]
    none = CliRunner().invoke(app, ["apply", "-f", str(other)])
    assert (none.exit_code, "there is no SpeculativeInferenceService in" in none.stderr) == (1, True)


def test_nothing_is_applied_where_a_service_is_wrong(kubectl: Kubectl, file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8").replace("decodingType: DraftTarget", "decodingType: Guess"))
    done = CliRunner().invoke(app, ["apply", "-f", str(file)])
    assert done.exit_code == 1
    assert '"Guess" is not allowed' in done.stderr
    assert not (kubectl.folder / "applied").exists()


def test_profiles_are_those_of_the_clusters_operator(kubectl: Kubectl, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("profile: reference", "profile: ours"), encoding="utf-8")
    kubectl.settings(**images.SETTINGS)
    done = CliRunner().invoke(app, ["apply", "-f", str(file)])
    assert (done.exit_code, "UnknownProfile" in done.stderr) == (1, True)


def test_without_the_operators_settings_the_api_server_judges_alone(kubectl: Kubectl, file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("profile: reference", "profile: ours"), encoding="utf-8")
    done = CliRunner().invoke(app, ["apply", "-f", str(file)])
    assert (done.exit_code, "its profiles are not checked" in done.stderr) == (0, True)


def test_a_conflict_is_shown_whole(kubectl: Kubectl, file: Path) -> None:
    (kubectl.folder / "refusal").write_text("error: Apply failed with 1 conflict: .spec.replicas\nPlease review\n")
    done = CliRunner().invoke(app, ["apply", "-f", str(file)])
    assert done.exit_code == 1
    assert ".spec.replicas\nPlease review\n--force-conflicts takes the fields over" in done.stderr


def test_waiting_shows_each_stage_once(kubectl: Kubectl, file: Path) -> None:
    kubectl.answers(
        service(READY, observed=1),
        service(ACCEPTED, DOWNLOADING),
        service(ACCEPTED, DOWNLOADING),
        service(ACCEPTED, condition("ModelsReady", "downloaded"), READY, GOING_ON),
        service(ACCEPTED, condition("ModelsReady", "downloaded"), READY),
    )
    done = CliRunner().invoke(app, ["apply", "-f", str(file), "--wait"])
    assert done.exit_code == 0, done.stderr
    assert [line.partition(" (")[0] for line in done.stdout.splitlines()] == [
        "Secret token: applied",
        "SpeculativeInferenceService svc: applied",
        "svc: SpecAccepted: profile reference",
        "svc: ModelsReady: downloaded",
        "svc: Ready: 1 of 1 servers answer",
    ]
    assert "svc: NotObserved: the operator has not acted on this spec yet" in done.stderr
    assert done.stderr.count("svc: DownloadRunning: Downloading: 1.20 of 12.00 GB (10 %)") == 1, "it did not change"


def test_a_failure_ends_the_wait_with_its_message(kubectl: Kubectl, file: Path) -> None:
    kubectl.answers(service(ACCEPTED, DOWNLOADING), service(ACCEPTED, STALLED, READY))
    done = CliRunner().invoke(app, ["apply", "-f", str(file), "--wait"])
    assert done.exit_code == 1
    assert "error: svc: NoTokenizer: no tokenizer in the folder: name another" in done.stderr


def test_a_wait_ends_in_time_with_what_is_in_the_way(kubectl: Kubectl, file: Path) -> None:
    kubectl.answers(service(ACCEPTED, DOWNLOADING))
    done = CliRunner().invoke(app, ["apply", "-f", str(file), "--wait", "--timeout", "0.2"])
    assert done.exit_code == 1
    assert "error: svc is not Ready after 0 s: DownloadRunning: Downloading" in done.stderr


def test_a_service_that_is_deleted_is_not_waited_for(kubectl: Kubectl, file: Path) -> None:
    kubectl.answers(service(ACCEPTED, DOWNLOADING), None)
    done = CliRunner().invoke(app, ["apply", "-f", str(file), "--wait"])
    assert (done.exit_code, "svc was deleted meanwhile" in done.stderr) == (1, True)


def test_only_the_operators_configmap_has_settings() -> None:
    assert of_operator([{"metadata": {}, "data": None}, {"metadata": {}, "data": {"other": ""}}]) is None
