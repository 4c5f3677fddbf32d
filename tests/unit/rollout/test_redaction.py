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
]


@pytest.mark.parametrize("text", [h[1] for h in HIDES], ids=[h[0] for h in HIDES])
def test_a_secret_is_hidden(text: str) -> None:
    assert CANARY in text
    assert CANARY not in redacted(text)
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
