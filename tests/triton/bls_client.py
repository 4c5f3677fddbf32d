"""Calls to the BLS models for tests and benchmarks, over gRPC; and model repositories for them."""

import queue
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
import tritonclient.grpc as triton
from tritonclient.utils import np_to_triton_dtype

from triton.harness import REPOSITORY_ROOT
from triton.repository import CLIENT_MODELS, COLLECTORS, ROUNDS, STREAMS, assemble, variables

PAIR = REPOSITORY_ROOT / "images/reference/pair"
STAND_IN = Path(__file__).with_name("stand_in_engine")
ENGINES = ["tensorrt_llm_engine", "tensorrt_llm_draft_engine"]
SERVING = ["preprocessing", "postprocessing", "speculative_bls", "tensorrt_llm_bls"]
SECONDS = 300

Array = npt.NDArray[Any]
Response = dict[str, Array]


def repository(folder: Path, engine: str, **changes: Any) -> Path:
    """A model repository with the pair's tokenizer and the `reference` engine, the `stand-in`, or none.

    `pair` among the changes: a folder with `target` and `draft`.
    """
    pair = changes.pop("pair", PAIR)
    values = variables(pair / "target", pair / "draft", **changes)
    before = [*STREAMS, *(ROUNDS if values.rounds else ())]
    before += [*CLIENT_MODELS, *COLLECTORS] if engine in ("reference", "stand-in") else []
    assemble(folder, SERVING + before + ([*ENGINES, "ensemble"] if engine == "reference" else []), values)
    if engine == "stand-in":
        template = jinja2.Template((STAND_IN / "config.pbtxt.j2").read_text(), undefined=jinja2.StrictUndefined)
        for name in ENGINES:
            (folder / name / "1").mkdir(parents=True)
            (folder / name / "config.pbtxt").write_text(template.render(name=name))
            shutil.copy(STAND_IN / "model.py", folder / name / "1/model.py")
    return folder


def inputs(*prompts: str, max_tokens: int | list[int] = 32, **more: Any) -> dict[str, Array]:
    """Tensors of a request; scalars in `more` go to every prompt, lists are one value a prompt.

    The prompt is not repeated in the answer.
    """
    rows = len(prompts)
    tensors = {"text_input": np.array([[prompt.encode()] for prompt in prompts], np.object_)}
    given = {"max_tokens": max_tokens, "exclude_input_in_output": True, **more}
    types = {"stream": np.bool_, "exclude_input_in_output": np.bool_, "stop": np.bool_, "seed": np.uint64}
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            tensors[name] = value
        else:
            kind = np.float32 if isinstance(value, float) else types.get(name, np.int32)
            tensors[name] = np.broadcast_to(np.array(value, kind).reshape(-1, 1), (rows, 1)).copy()
    return tensors


def words(*rows: list[str]) -> Array:
    """A string tensor, a row a prompt."""
    return np.array([[word.encode() for word in row] for row in rows], np.object_)


def infer_inputs(tensors: dict[str, Array]) -> list[Any]:
    """tritonclient's form of tensors."""
    made = []
    for name, value in tensors.items():
        made.append(triton.InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype)))
        made[-1].set_data_from_numpy(value)
    return made


@dataclass
class Stream:
    """A gRPC stream with one request in it. Use as a context manager; leaving cancels what is not over.

    What is over is not cancelled: Triton 2.51 then never gives the request up, and waits for it at its
    shutdown.
    """

    url: str
    model: str = "speculative_bls"
    _answers: "queue.Queue[tuple[Any, Any]]" = field(default_factory=queue.Queue)
    _over: bool = False

    def __enter__(self) -> "Stream":
        self._client = triton.InferenceServerClient(self.url)
        self._client.start_stream(lambda result, error: self._answers.put((result, error)))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop_stream(cancel_requests=not self._over)
        self._client.close()

    def send(self, tensors: dict[str, Array], request_id: str = "", outputs: Iterable[str] = ()) -> None:
        """Send a request, for these outputs only; none: for all that there are."""
        self._client.async_stream_infer(
            self.model,
            infer_inputs(tensors),
            request_id=request_id,
            outputs=[triton.InferRequestedOutput(name) for name in outputs] or None,
            enable_empty_final_response=True,
        )

    def receive(self) -> tuple[Response, bool]:
        """The next response and whether it is the last. Raises InferenceServerException."""
        result, error = self._answers.get(timeout=SECONDS)
        if error:
            self._over = True
            raise error
        answer = result.get_response()
        outputs = {output.name: result.as_numpy(output.name) for output in answer.outputs}
        self._over = answer.parameters["triton_final_response"].bool_param
        return outputs, self._over


def stream(url: str, tensors: dict[str, Array], model: str = "speculative_bls") -> list[Response]:
    """All responses of a request to a decoupled model. Raises InferenceServerException."""
    with Stream(url, model) as call:
        call.send(tensors)
        responses, last = [], False
        while not last:
            response, last = call.receive()
            if response:
                responses.append(response)
        return responses


def unary(url: str, tensors: dict[str, Array], model: str = "tensorrt_llm_bls") -> Response:
    """The one response of a model that is not decoupled. Raises InferenceServerException."""
    with triton.InferenceServerClient(url) as client:
        result = client.infer(model, infer_inputs(tensors), client_timeout=SECONDS)
        return {output.name: result.as_numpy(output.name) for output in result.get_response().outputs}


def text(responses: list[Response], index: int = 0) -> str:
    """The text of one prompt's responses."""
    chunks = [r["text_output"].reshape(-1)[0] for r in responses if r["batch_index"].item() == index]
    return b"".join(chunks).decode()


def ids(responses: list[Response], index: int = 0) -> list[int]:
    """The token ids of one prompt's responses."""
    return [int(t) for r in responses if r["batch_index"].item() == index for t in r["output_ids"].reshape(-1)]
