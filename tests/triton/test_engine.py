"""The reference engine on the real Triton server, with the pair."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer
from tritonclient.utils import InferenceServerException

from triton.engine_client import Client, inputs, open_client
from triton.harness import REPOSITORY_ROOT, TritonServer
from triton.repository import assemble, variables

Ids = npt.NDArray[np.int32]

PAIR = REPOSITORY_ROOT / "images/reference/pair"
TARGET, DRAFT = "tensorrt_llm_engine", "tensorrt_llm_draft_engine"
GOLDEN = np.load(PAIR / "golden.npz")
LIMIT = json.loads((PAIR / "target/config.json").read_text())["max_position_embeddings"]
PROMPT: Ids = GOLDEN["prompt_3"]
GREEDY: list[int] = GOLDEN["target_greedy_3"].tolist()


def prompts(count: int) -> list[Ids]:
    """Prompts of the pair's held-out files, as token ids."""
    tokenizer = Tokenizer.from_file(str(PAIR / "target/tokenizer.json"))
    lines = (PAIR / "prompts.jsonl").read_text().splitlines()[:count]
    return [np.array(tokenizer.encode(json.loads(line)["prompt"]).ids, np.int32) for line in lines]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder: Path = tmp_path_factory.mktemp("engines")
    repository = assemble(folder, [TARGET, DRAFT], variables(PAIR / "target", PAIR / "draft"))
    with TritonServer(repository) as server:
        yield server


@pytest.fixture
def client(server: TritonServer) -> Iterator[Client]:
    with open_client(server.grpc_url) as client:
        yield client


@pytest.mark.parametrize(("model", "role"), [(TARGET, "target"), (DRAFT, "draft")])
@pytest.mark.parametrize("streaming", [True, False])
def test_greedy_is_transformers(client: Client, model: str, role: str, streaming: bool) -> None:
    expected = GOLDEN[f"{role}_greedy_3"].tolist()
    responses = list(client.send(model, inputs(PROMPT, len(expected), streaming=streaming)).responses())
    parts = [response["output_ids"].reshape(-1).tolist() for response in responses]
    assert [response["sequence_length"].item() for response in responses] == [len(part) for part in parts]
    assert all(parts), "none is empty"
    assert len(parts) > 1 if streaming else len(parts) == 1, "a part has what came while the one before was sent"
    ids = [token for part in parts for token in part]
    assert ids == (expected if streaming else PROMPT.tolist() + expected)


@pytest.mark.parametrize("kept", range(5))
def test_verification(client: Client, kept: int) -> None:
    draft = np.array([GREEDY[:4]], np.int32)
    if kept < 4:
        draft[0, kept] += 1
    call = client.send(
        TARGET, inputs(PROMPT, 5, draft_input_ids=draft, exclude_input_in_output=True, return_perf_metrics=True)
    )
    [response] = call.responses()
    assert response["output_ids"].reshape(-1).tolist() == GREEDY[: kept + 1]
    assert response["total_accepted_draft_tokens"].item() == kept


def test_32_at_once_are_each_as_alone(client: Client) -> None:
    texts = prompts(32)
    settings: list[dict[str, Any]] = [{}, {"runtime_top_p": 0.9, "seed": 7, "temperature": 1.3}]
    requests = [inputs(text, 24, exclude_input_in_output=True, **settings[i % 2]) for i, text in enumerate(texts)]
    alone = [client.send(TARGET, request).tokens() for request in requests]
    calls = [client.send(TARGET, {**request, "streaming": np.ones((1, 1), np.bool_)}) for request in requests]
    assert [call.tokens() for call in calls] == alone


def test_rows_of_one_request_have_their_own_ends(client: Client) -> None:
    short, long = PROMPT[:9], PROMPT
    ids = np.zeros((2, len(long)), np.int32)
    ids[0, : len(short)], ids[1] = short, long
    tensors = {
        "input_ids": ids,
        "input_lengths": np.array([[len(short)], [len(long)]], np.int32),
        "request_output_len": np.array([[3], [6]], np.int32),
        "exclude_input_in_output": np.ones((2, 1), np.bool_),
    }
    responses = {
        r["batch_index"].item(): r["output_ids"].reshape(-1).tolist()
        for r in client.send(TARGET, tensors).responses()
    }
    assert responses == {
        0: client.send(TARGET, inputs(short, 3, exclude_input_in_output=True)).tokens(),
        1: GREEDY[:6],
    }


def together(*rows: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """One request of requests of one row each, input_ids filled up to the longest."""
    longest = max(row["input_ids"].shape[1] for row in rows)
    padded = [
        row | {"input_ids": np.pad(row["input_ids"], ((0, 0), (0, longest - row["input_ids"].shape[1])))}
        for row in rows
    ]
    return {name: np.concatenate([row[name] for row in padded]) for name in rows[0]}


def test_one_response_holds_what_single_requests_get(client: Client) -> None:
    draft = np.array([GREEDY[:4]], np.int32)
    flags = {"exclude_input_in_output": True, "return_log_probs": True, "return_generation_logits": True}
    rows = [
        inputs(PROMPT, 5, draft_input_ids=draft, seed=1, runtime_top_p=0.0, **flags),
        inputs(prompts(2)[1], 5, draft_input_ids=draft + 1, seed=2, runtime_top_p=0.9, **flags),
        inputs(PROMPT[:9], 5, draft_input_ids=draft, seed=3, runtime_top_p=0.95, **flags),
    ]
    singles = [next(client.send(TARGET, row).responses()) for row in rows]
    [response] = client.send(TARGET, together(*rows), one_response=True).responses()
    lengths = [single["sequence_length"].item() for single in singles]
    assert response["sequence_length"].reshape(-1).tolist() == lengths
    assert lengths[0] == 5 != lengths[1], "the table needs rows of different lengths"
    assert response["output_ids"].shape == (3, 1, 5)
    for i, single in enumerate(singles):
        for name in ("output_ids", "output_log_probs", "generation_logits"):
            assert np.array_equal(response[name][i, :, : lengths[i]], single[name][0]), name
            assert not response[name][i, :, lengths[i] :].any(), f"{name} is not filled up with zeros"
        assert response["cum_log_probs"][i] == single["cum_log_probs"][0]


def test_one_bad_row_is_named_and_none_is_run(client: Client) -> None:
    rows = together(inputs(PROMPT, 3), inputs(np.array([9999], np.int32), 3))
    with pytest.raises(InferenceServerException, match=re.escape("row 1: input_ids holds ids outside 0..2047")):
        client.send(TARGET, rows, one_response=True).tokens()


def test_one_response_cannot_stream(client: Client) -> None:
    with pytest.raises(InferenceServerException, match="one_response is true, but streaming is too"):
        client.send(TARGET, inputs(PROMPT, 3, streaming=True), one_response=True).tokens()


def test_rounds_by_draft_logits(client: Client) -> None:
    """As a client runs them: the draft's generation_logits are the target's draft_logits."""
    settings = {"runtime_top_p": 0.9, "temperature": 0.7, "seed": 11, "exclude_input_in_output": True}
    texts, accepted = prompts(3), 0
    for _ in range(4):
        drafts = together(*(inputs(text, 4, return_generation_logits=True, **settings) for text in texts))
        [drafted] = client.send(DRAFT, drafts, one_response=True).responses()
        assert drafted["generation_logits"].shape == (3, 1, 4, 2048)
        targets = together(*(inputs(text, 5, return_perf_metrics=True, **settings) for text in texts)) | {
            "draft_input_ids": drafted["output_ids"][:, 0],
            "draft_logits": drafted["generation_logits"][:, 0],
        }
        [checked] = client.send(TARGET, targets, one_response=True).responses()
        kept = checked["total_accepted_draft_tokens"].reshape(-1).tolist()
        for i, length in enumerate(checked["sequence_length"].reshape(-1).tolist()):
            new = checked["output_ids"][i, 0, :length]
            assert length == kept[i] + 1
            assert np.array_equal(new[: kept[i]], drafted["output_ids"][i, 0, : kept[i]])
            texts[i] = np.concatenate([texts[i], new])
        accepted += sum(kept)
    assert 12 < accepted < 48, f"{accepted} of 48 draft tokens were accepted: the pair's draft is better and worse"


def test_end_id_and_stop_words(client: Client) -> None:
    stop = np.array([[[GREEDY[1], GREEDY[2], 0], [2, -1, -1]]], np.int32)
    assert client.send(TARGET, inputs(PROMPT, 9, streaming=True, stop_words_list=stop)).tokens() == GREEDY[:3]
    assert client.send(TARGET, inputs(PROMPT, 9, streaming=True, end_id=GREEDY[4])).tokens() == GREEDY[:4]
    call = client.send(TARGET, inputs(PROMPT, 9, exclude_input_in_output=True, end_id=GREEDY[0]))
    [response] = call.responses()
    assert (response["output_ids"].size, response["sequence_length"].item()) == (0, 0)


def test_log_probs_and_logits(client: Client) -> None:
    flags = {"exclude_input_in_output": True, "return_log_probs": True, "return_generation_logits": True}
    [response] = client.send(TARGET, inputs(PROMPT, 3, **flags)).responses()
    logits = response["generation_logits"][0, 0].astype(np.float64)
    chosen = logits[range(3), GREEDY[:3]]
    assert logits.argmax(axis=1).tolist() == GREEDY[:3]
    expected = chosen - np.log(np.exp(logits).sum(axis=1))
    np.testing.assert_allclose(response["output_log_probs"][0, 0], expected, atol=1e-4)
    assert response["cum_log_probs"].item() == pytest.approx(expected.sum(), abs=1e-4)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("no prompt", inputs(PROMPT[:1], 5) | {"input_lengths": np.zeros((1, 1), np.int32)}, "input_ids is empty"),
    ("nothing to generate", inputs(PROMPT, 0), "request_output_len is 0: send 1 or more"),
    ("too long", inputs(np.ones(LIMIT, np.int32), 9), f"{LIMIT} prompt tokens and 9 to generate are {LIMIT + 9}"),
    (
        "draft logits of another vocabulary",
        inputs(PROMPT, 5, draft_input_ids=PROMPT[None, :2], draft_logits=np.zeros((1, 2, 5), np.float32)),
        "draft_logits has shape [2, 5] in a row: send [2, 2048]",
    ),
    (
        "a draft that no pass holds",
        inputs(PROMPT, 5, draft_input_ids=np.ones((1, 512), np.int32)),
        "send 511 at most",
    ),
    ("two beams", inputs(PROMPT, 5, beam_width=2), "beam_width is 2"),
    ("LoRA", inputs(PROMPT, 5, lora_config=np.zeros((1, 1, 3), np.int32)), "lora_config is not supported"),
    ("ids of another tokenizer", inputs(np.array([9999], np.int32), 5), "input_ids holds ids outside 0..2047"),
    (
        "bias too short",
        inputs(PROMPT, 5, embedding_bias=np.zeros((1, 3), np.float32)),
        "embedding_bias has shape [3]",
    ),
]


@pytest.mark.parametrize(("reason", "tensors", "message"), BAD, ids=[row[0] for row in BAD])
def test_a_bad_request_is_told_and_disturbs_nobody(
    client: Client, server: TritonServer, reason: str, tensors: dict[str, Any], message: str
) -> None:
    with open_client(server.grpc_url) as other:
        good = other.send(TARGET, inputs(PROMPT, 40, streaming=True))
        with pytest.raises(InferenceServerException, match=re.escape(message)) as error:
            client.send(TARGET, tensors).tokens()
        assert "Traceback" not in str(error.value)
        assert "At:" not in str(error.value)
        assert good.tokens() == GREEDY[:40]


LONG = 1900


def test_a_stop_request_ends_the_one_with_its_id(client: Client, server: TritonServer) -> None:
    with open_client(server.grpc_url) as other:
        call = client.send(TARGET, inputs(PROMPT, LONG, streaming=True), request_id="to-stop")
        arrived = call.responses()
        next(arrived)
        stop = {**inputs(PROMPT[:1], 1), "stop": np.ones((1, 1), np.bool_)}
        assert other.send(TARGET, stop, request_id="to-stop").tokens() == []
        with pytest.raises(InferenceServerException, match="the request was cancelled"):
            for count, _ in enumerate(arrived):
                assert count < LONG - 2, "it was not stopped"
        assert client.send(TARGET, inputs(PROMPT, 3, exclude_input_in_output=True)).tokens() == GREEDY[:3]


def test_slots_of_clients_that_are_gone_serve_others(tmp_path: Path) -> None:
    values = variables(PAIR / "target", None, max_batch_size=2)
    with TritonServer(assemble(tmp_path / "small", [TARGET], values)) as small:
        with open_client(small.grpc_url, leave=True) as gone:
            calls = [gone.send(TARGET, inputs(PROMPT, LONG, streaming=True)) for _ in range(2)]
            for call in calls:
                next(call.responses())
        with open_client(small.grpc_url) as client:
            assert client.send(TARGET, inputs(PROMPT, 3, exclude_input_in_output=True)).tokens() == GREEDY[:3]
        assert "given up by its client" in small.log, "the third waited for the end of one of the two"
