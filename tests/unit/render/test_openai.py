"""The OpenAI endpoint in a service's children."""

import json
from typing import Any

import pytest
import yaml

from support.pods import rendered
from support.services import DATA, QUICKSTART, parse
from tandem.children.networkpolicy import network_policy
from tandem.children.service import endpoint, openai_url
from tandem.render import Record, asks_for, render
from tandem.render.v1.pod import server_pod, worker_pod

ARGUMENTS = [
    # openAI, arguments of the container beside those that it always has, why
    ("{}", {"--name=$(TANDEM_SERVICE)", "--max-body=4194304"}, "the name is the service's, as its label has it"),
    ("{servedModelName: org/llama}", {"--name=org/llama", "--max-body=4194304"}, "a name of the user's"),
    ("{toolCalls: Hermes}", {"--name=$(TANDEM_SERVICE)", "--max-body=4194304", "--tool-calls=Hermes"}, "a format"),
    (
        "{thinking: {}}",
        {"--name=$(TANDEM_SERVICE)", "--max-body=4194304", "--thinking-begin=<think>", "--thinking-end=</think>"},
        "the markers of most families",
    ),
    (
        "{thinking: {begin: '[THINK]', end: '[/THINK]'}}",
        {"--name=$(TANDEM_SERVICE)", "--max-body=4194304", "--thinking-begin=[THINK]", "--thinking-end=[/THINK]"},
        "markers of another family",
    ),
    ("{maxBodyMiB: 1}", {"--name=$(TANDEM_SERVICE)", "--max-body=1048576"}, "bytes"),
    (
        "{apiKeySecret: keys, tlsSecret: certificate}",
        {"--name=$(TANDEM_SERVICE)", "--max-body=4194304", "--keys=/etc/tandem/api-keys", "--tls=/etc/tandem/tls"},
        "Secrets are folders",
    ),
]


def container(openai: str) -> dict[str, Any]:
    asked = {"enabled": True, **yaml.safe_load(openai)}
    inputs = rendered(yaml.safe_dump({"serving": {"requestTimeoutSeconds": 77, "openAI": asked}}))
    _, found = server_pod(inputs)["containers"]
    return dict(found)


@pytest.mark.parametrize(("openai", "wanted", "reason"), ARGUMENTS, ids=[row[-1] for row in ARGUMENTS])
def test_its_arguments(openai: str, wanted: set[str], reason: str) -> None:
    always = {"--mode=LLMAPI", "--port=9000", "--triton-port=8001", "--tokenizer=/tokenizer", "--grace=77"}
    found = {each for each in container(openai)["command"][3:] if not each.startswith("--refused=")}
    assert found == wanted | always, reason


def test_it_knows_what_the_engine_would_drop() -> None:
    (refused,) = [each for each in container("{}")["command"] if each.startswith("--refused=")]
    assert "seed" in json.loads(refused.removeprefix("--refused="))


def test_with_tls_the_probes_speak_it() -> None:
    for probe in ("readinessProbe", "livenessProbe"):
        assert container("{tlsSecret: certificate}")[probe]["httpGet"]["scheme"] == "HTTPS"
        assert "scheme" not in container("{}")[probe]["httpGet"]


def test_secrets_are_mounted_in_the_endpoint_alone() -> None:
    pod = server_pod(rendered("serving: {openAI: {enabled: true, apiKeySecret: keys, tlsSecret: certificate}}"))
    secrets = {volume["name"]: volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
    assert secrets == {"api-keys": "keys", "tls": "certificate"}
    triton, openai = ({mount["name"] for mount in each["volumeMounts"]} for each in pod["containers"])
    assert secrets.keys() <= openai
    assert not secrets.keys() & triton


def test_resources_are_the_users() -> None:
    assert container("{resources: {limits: {cpu: '2'}}}")["resources"] == {"limits": {"cpu": "2"}}


def test_servers_of_those_who_want_none() -> None:
    (only,) = server_pod(rendered("serving: {openAI: {enabled: false}}"))["containers"]
    assert only["name"] == "triton"


def test_the_workers_of_a_group_have_none() -> None:
    pod = worker_pod(rendered("{target: {tensorParallelSize: 16}, serving: {openAI: {enabled: true}}}"))
    assert pod is not None
    assert [each["name"] for each in pod["containers"]] == ["triton"]


def service_and_revision(**openai: Any) -> tuple[Any, Any]:
    record = Record.model_validate_json((DATA / "output/draft-target/revision/record.json").read_text())
    service = parse(QUICKSTART, serving={"openAI": openai})
    return service, render(record.model_copy(update={"spec": service.spec}))


def test_the_entry_point_copies_the_tokenizer_for_it() -> None:
    _, revision = service_and_revision()
    assert json.loads(revision.files["launch.json"])["tokenizer"] == {
        "from": "/opt/reference/pair/target",
        "to": "/tokenizer",
    }


def test_the_services_port_is_the_users_and_rolls_nothing_out() -> None:
    (service, revision), (other, same) = service_and_revision(), service_and_revision(port=443)
    assert same.digest == revision.digest
    assert asks_for(other.spec) == asks_for(service.spec)
    port = {"name": "openai", "port": 443, "targetPort": "openai", "protocol": "TCP"}
    assert endpoint(other)["spec"]["ports"][-1] == port
    assert openai_url(other, same) == "http://quickstart-triton.default.svc:443/v1"


def test_status_shows_no_endpoint_where_there_is_none() -> None:
    service, revision = service_and_revision(tlsSecret="certificate")
    assert openai_url(service, revision) == "https://quickstart-triton.default.svc:9000/v1"
    service, revision = service_and_revision(enabled=False)
    assert openai_url(service, revision) is None
    assert [port["name"] for port in endpoint(service)["spec"]["ports"]] == ["http", "grpc", "metrics"]


def test_named_peers_reach_it_at_the_pods_port() -> None:
    service = parse(QUICKSTART, serving={"access": {"from": [{"podSelector": {}}]}, "openAI": {"port": 443}})
    policy = network_policy(service, 1, [])
    assert policy is not None
    assert [each["port"] for each in policy["spec"]["ingress"][0]["ports"]] == [8000, 8001, 8002, 9000]
