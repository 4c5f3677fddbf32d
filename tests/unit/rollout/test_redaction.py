"""Secrets in what pods write: what is hidden, and what must stay readable."""

import json

import pytest

from tandem.rollout.redaction import HIDDEN, redacted
from tandem.rollout.termination import engine_failure
from tandem.rollout.verdict import parse_verdict

CANARY = "c4n4ryS3cr3tValue"
JWT = f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.{CANARY}"
HIDES: list[tuple[str, str]] = [
    ("a Hub token", f"401 for token hf_{CANARY}"),
    ("an NVIDIA key", f"nvapi-{CANARY} was refused"),
    ("an API key", f"Incorrect API key provided: sk-{CANARY}"),
    ("a variable", f"HF_TOKEN={CANARY}"),
    ("a variable in a dump", f"environ({{'HOME': '/', 'AWS_SECRET_ACCESS_KEY': '{CANARY}'}})"),
    ("JSON", json.dumps({"user": "u", "password": CANARY})),
    ("YAML", f"client_secret: {CANARY}"),
    ("a header", f"Authorization: Bearer {CANARY}"),
    ("another header", f"{{'authorization': 'Basic {CANARY}'}}"),
    ("a ServiceAccount's token", f"sent {JWT}"),
    ("a URL's password", f"cannot reach https://robot:{CANARY}@registry.example.com/v2"),
    ("a signed URL", f"GET https://b.s3.amazonaws.com/k?X-Amz-Expires=60&X-Amz-Signature={CANARY} gave 403"),
    ("Azure's", f"GET https://a.blob.core.windows.net/k?sv=1&sig={CANARY}"),
    ("Azure's account", f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={CANARY}==;EndpointSuffix=x"),
    ("Azure's shared access", f"Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey={CANARY}="),
    ("Azure's gateway", f"Ocp-Apim-Subscription-Key: {CANARY}"),
    ("an Entra application's", f"client abc8Q~{CANARY} was refused"),
    ("a bearer token without a header", f"sent Bearer {CANARY} to http://hub"),
    ("one in lower case", f"got 'bearer {CANARY}='"),
    ("AWS's key", "AKIA0123456789C4N4RY was refused"),
    ("AWS's passing key", "ASIA0123456789C4N4RY was refused"),
    ("AWS's secret", json.dumps({"SecretAccessKey": CANARY})),
    ("Google's key", f"https://x.googleapis.com/v1?key=AIza{CANARY} gave 400"),
    ("Google's access token", f"refused ya29.{CANARY}"),
    ("GitHub's", f"git clone with ghp_{CANARY}"),
    ("GitHub's server token", f"git clone with ghs_{CANARY}"),
    ("GitHub's fine-grained", f"git clone with github_pat_11AB_{CANARY}"),
    ("GitLab's", f"git clone with glpat-{CANARY}"),
    ("OpenAI's project key", f"Incorrect API key provided: sk-proj-{CANARY}"),
    ("Slack's", f"webhook of xoxb-12-{CANARY}"),
    ("Vault's", f"login with hvs.{CANARY}"),
    ("a registry's", f"pull with dckr_pat_{CANARY}"),
    ("pwd", f"Server=db;Uid=robot;Pwd={CANARY};"),
    ("pwd in a variable", f"DB_PWD={CANARY}"),
    ("a passphrase", f"passphrase: {CANARY}"),
    ("words in quotes", f'passphrase: "correct {CANARY} staple"'),
    ("JSON in JSON", json.dumps(json.dumps({"password": CANARY}))),
    ("an argument", f"tritonserver --hf-token {CANARY} failed"),
    ("arguments in a list", f"['run', '--api-key', '{CANARY}']"),
    ("a private key", f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----"),
    ("one that is cut off", f"-----BEGIN PRIVATE KEY-----\n{CANARY}"),
]
KEPT = [
    "CUDA out of memory. Tried to allocate 2.00 GiB",
    "the tokenizer of the draft: <unk> differs",
    "max_tokens: 4096, num_draft_tokens=4, kvCache.maxTokens: 8192",
    "model.secretName: hf-token is not there: kubectl create secret generic hf-token",
    "eos_token: </s>, pad_token=<pad>, additional bos_token: <s>",
    "rank 0: tokens per second: 12.5",
    "s3://bucket/key: no such key",
    "http://proxy:3128 does not answer",
    "read 1 of 3 keys: weight, bias, key: q_proj",
    "image tag sk-1 and AKIA are short",
    "PWD=/workspace, OLDPWD=/, 'PWD': '/models'",
    "bearer authentication is required, and Bearer authentication-information is missing",
    "AccountName=models: account key rotation is due",
    "HF_TOKEN is not set: write secretName",
    "next_token: 128001, last_token=7, --eos-token </s>",
    "tokenizer: qwen, token_type: bearer, --max-tokens 16",
    "a passphrase-protected key cannot be read",
    "password authentication failed for user robot",
    "sha256:0123456789abcdef, commit 0123456789abcdef0123456789abcdef01234567",
    "--key-file /etc/tls.key is not there",
    "hf_quant_config.json and hf_transfer are missing, npm_config_registry is set, pypi-attestations 0.0.27",
    "glibc-2.36-9+deb12u14 and globals-1234567890 are packages",
    "registry.example.com/tandem/serving@sha256:0123 has no tag ghost_writer_01",
]


@pytest.mark.parametrize("text", [h[1] for h in HIDES], ids=[h[0] for h in HIDES])
def test_a_secret_is_hidden(text: str) -> None:
    canary = CANARY if CANARY in text else "C4N4RY"
    assert canary in text
    assert canary not in redacted(text)
    assert HIDDEN in redacted(text)


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_what_jobs_and_engines_report_is_looked_through() -> None:
    check = {"type": "ModelsReady", "status": "False", "reason": "X", "message": f"HF_TOKEN={CANARY}"}
    (found,) = parse_verdict(json.dumps({"checks": [check]})).checks
    assert found.message == f"HF_TOKEN={HIDDEN}"
    ended = {"engineFailure": {"model": "m", "reason": "EngineFailing", "message": f"password={CANARY}"}}
    failure = engine_failure(json.dumps(ended))
    assert failure
    assert failure.description == f"engine m failed: password={HIDDEN}"
