"""The OpenAI endpoint in unit tests: a Triton that answers what a test says, a template, a tokenizer's folder."""

import contextlib
import datetime
import json
import shutil
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.types import ASGIApp

from tandem_serving.openai.triton import MODELS, Chunk, TritonServer

PAIR = Path(__file__).parents[3] / "images/reference/pair"
LLAMA_LIKE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}]\n{{ message.content | trim }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]\n{% endif %}"
)


class FakeTriton(TritonServer):
    """Answers each call with `answers`: chunks with their requests' places, or an error to raise."""

    def __init__(self, *answers: tuple[int, Chunk] | Exception, mode: str = "BLS") -> None:
        self.model = MODELS[mode]
        self.answers: Iterable[tuple[int, Chunk] | Exception] = answers
        self.calls: list[tuple[Sequence[Mapping[str, Any]], Sequence[str]]] = []
        self.ended = 0

    async def ready(self, seconds: float = 2.0) -> bool:
        """Whether it has answers."""
        return bool(self.answers)

    async def most_tokens(self) -> int:
        """As many as tests send."""
        return 100_000

    async def generate(
        self, requests: Sequence[Mapping[str, Any]], outputs: Sequence[str]
    ) -> AsyncGenerator[tuple[int, Chunk]]:
        """The answers."""
        self.calls.append((requests, outputs))
        try:
            for answer in self.answers:
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        finally:
            self.ended += 1


def tokenizer_folder(folder: Path, template: str | None = LLAMA_LIKE) -> Path:
    """The pair's tokenizer with a chat template."""
    shutil.copy(PAIR / "target/tokenizer.json", folder)
    config = {"eos_token": "<|endoftext|>", **({"chat_template": template} if template else {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write_certificate(folder: Path, name: str) -> None:
    """A self-signed one, as a Secret of type kubernetes.io/tls has it."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    made = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    (folder / "tls.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )


@contextlib.asynccontextmanager
async def lifespan(_: object) -> AsyncIterator[None]:
    """Of an endpoint that has nothing to close."""
    yield


@contextlib.contextmanager
def listening(application: ASGIApp, tls: Path | None = None) -> Iterator[str]:
    """Its URL on a port of its own, for clients that open connections. `tls`: folder of a certificate."""
    listener = socket.create_server(("127.0.0.1", 0))
    files = {"ssl_certfile": tls / "tls.crt", "ssl_keyfile": tls / "tls.key"} if tls else {}
    server = uvicorn.Server(uvicorn.Config(application, log_config=None, access_log=False, **files))  # type: ignore[arg-type]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
