"""A stand-in for Hugging Face Hub: serves the models below a folder, with the faults that a test asks for.

    python -m fetcher.hub_server --root FOLDER [--port 8900]

FOLDER/<org>/<name>/ is a model, its files those of branch `main`; the commit is a hash of their contents. Files of
LFS_FROM bytes and more are served as Git LFS objects: by a redirect to a signed URL of another origin, the "CDN".

PUT /_faults changes the faults (JSON, the fields of `Faults`), GET /_stats tells the bytes sent by file. It speaks
the parts of the protocol that huggingface_hub's model_info, list_repo_tree and file downloads use:
https://huggingface.co/docs/hub/api, https://huggingface.co/spaces/huggingface/openapi
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import re
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LFS_FROM = 64 * 1024
_BLOCK = 64 * 1024
_PAGE = 3


@dataclass
class Faults:
    """What goes wrong. Model and file names are lists so that JSON can set them."""

    bytes_per_second: float = 0
    """0: as fast as it goes; the limit is each request's."""
    corrupt: list[str] = field(default_factory=list)
    """Files sent with a byte changed."""
    corrupt_times: int = 1_000_000
    """How many responses are corrupted, of all files together."""
    cut_after: int = 0
    """Bytes after which a response of a larger file breaks off, 0: never."""
    private: list[str] = field(default_factory=list)
    """Models that only the token sees."""
    gated: list[str] = field(default_factory=list)
    """Models whose files only the token gets."""
    token: str = "hf_good"
    """The one that may see private and gated models."""
    outsider: str = "hf_outsider"
    """A valid token of somebody who has no access."""
    extra_names: list[str] = field(default_factory=list)
    """Names that are listed beside the model's files."""
    status: int = 0
    """Answer every request to the Hub with this status, 0: do not."""
    ranges: bool = True
    """Whether ranges are understood."""
    cdn_status: int = 0
    """What the CDN answers instead of content."""


@dataclass(frozen=True)
class HubFile:
    """A file of a model as the Hub lists it."""

    path: str
    content: bytes

    @property
    def lfs(self) -> bool:
        """Whether it is stored outside git."""
        return len(self.content) >= LFS_FROM

    @property
    def blob(self) -> str:
        """Git's object id of the content."""
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()

    @property
    def sha256(self) -> str:
        """Git LFS's object id of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def entry(self) -> dict[str, Any]:
        """Return the entry of the tree API. Of an LFS file `oid` is the pointer's, which nobody should compare."""
        size = len(self.content)
        entry = {"type": "file", "path": self.path, "size": size, "oid": self.blob}
        if self.lfs:
            pointer = hashlib.sha1(self.sha256.encode()).hexdigest()
            entry |= {"oid": pointer, "lfs": {"oid": self.sha256, "size": size, "pointerSize": 134}}
        return entry


class HubServer(ThreadingHTTPServer):
    """The server; `faults` may be changed at any time, `sent` counts body bytes of files by model and path."""

    daemon_threads = True

    def __init__(self, root: Path, port: int = 0, host: str = "127.0.0.1", cdn: str = "") -> None:
        super().__init__((host, port), _Handler)
        self.root = root
        # Another origin than 127.0.0.1, as the CDN is: clients must not send their token there.
        self.scheme = "http"
        self.cdn = cdn or f"http://localhost:{self.server_address[1]}"
        self.faults = Faults()
        self.sent: Counter[str] = Counter()
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Path and headers of each request."""
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """The endpoint, for HF_ENDPOINT."""
        return f"{self.scheme}://{self.server_address[0]!s}:{self.server_address[1]}"

    def start(self) -> HubServer:
        """Serve from a thread."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def files(self, model: str) -> list[HubFile]:
        """Return a model's files, sorted; none when there is no such model."""
        folder = self.root / model
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return [HubFile(str(path.relative_to(folder)), path.read_bytes()) for path in paths]

    def commit(self, model: str) -> str:
        """Return the commit of a model's files as they are now."""
        listed = [(file.path, file.sha256) for file in self.files(model)]
        return hashlib.sha1(json.dumps(listed).encode()).hexdigest()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def do_GET(self) -> None:
        """Answer one request of the Hub, the CDN or the test."""
        with self.server.lock:
            self.server.requests.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
        url = urlsplit(self.path)
        path = unquote(url.path)
        if path == "/_stats":
            self._json(200, dict(self.server.sent))
        elif path.startswith("/_cdn/"):
            self._cdn(path)
        elif self.server.faults.status:
            self._refuse(self.server.faults.status, "", "out of order")
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            self._info(match[1], match[2] or "main")
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/]+)(?:/(.+))?", path):
            self._tree(match[1], match[2], match[3] or "", parse_qs(url.query))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(match[1], match[2], match[3])
        else:
            self._refuse(404, "", "no such page")

    def do_HEAD(self) -> None:
        """As GET; bodies are left out."""
        self.do_GET()

    def do_PUT(self) -> None:
        """PUT /_faults: change some of the faults."""
        changes = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.faults = dataclasses.replace(self.server.faults, **changes)
        self._json(200, dataclasses.asdict(self.server.faults))

    def _info(self, model: str, revision: str) -> None:
        if self._visible(model, revision):
            siblings = [{"rfilename": file.path} for file in self.server.files(model)]
            self._json(200, {"id": model, "sha": self.server.commit(model), "siblings": siblings})

    def _tree(self, model: str, revision: str, folder: str, query: dict[str, list[str]]) -> None:
        if not self._visible(model, revision):
            return
        entries = [file.entry() for file in self.server.files(model)]
        if folder:
            entries = [entry for entry in entries if entry["path"].startswith(f"{folder}/")]
            if not entries:
                self._refuse(404, "EntryNotFound", f"{folder} does not exist")
                return
        extra = [HubFile(name, b"{}").entry() for name in self.server.faults.extra_names]
        start = int(query.get("cursor", ["0"])[0])
        page = (entries + extra)[start : start + _PAGE]
        more = start + _PAGE < len(entries + extra)
        here = f"{self.server.scheme}://{self.headers['Host']}{urlsplit(self.path).path}"
        location = f"{here}?recursive=True&cursor={start + _PAGE}"
        self._json(200, page, {"Link": f'<{location}>; rel="next"'} if more else {})

    def _resolve(self, model: str, revision: str, name: str) -> None:
        if not self._visible(model, revision):
            return
        if model in self.server.faults.gated and self._token() != self.server.faults.token:
            self._refuse(403 if self._token() else 401, "GatedRepo", f"Access to model {model} is restricted")
            return
        file = self._file(model, name)
        if file is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
        elif file.lfs:
            location = f"{self.server.cdn}/_cdn/{model}/{name}?signature=secret"
            headers = {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(len(file.content))}
            self._send(302, b"", {"Location": location, **headers})
        else:
            self._content(model, file)

    def _cdn(self, path: str) -> None:
        org, name, path = path.removeprefix("/_cdn/").split("/", 2)
        if self.server.faults.cdn_status:
            self._refuse(self.server.faults.cdn_status, "", "Forbidden")
            return
        file = self._file(f"{org}/{name}", path)
        if file is not None:
            self._content(f"{org}/{name}", file)

    def _file(self, model: str, name: str) -> HubFile | None:
        return next((file for file in self.server.files(model) if file.path == name), None)

    def _visible(self, model: str, revision: str) -> bool:
        faults, token = self.server.faults, self._token()
        if token not in ("", faults.token, faults.outsider):
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif not self.server.files(model) or (model in faults.private and token != faults.token):
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        elif revision not in ("main", self.server.commit(model)):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return True
        return False

    def _token(self) -> str:
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def _content(self, model: str, file: HubFile) -> None:
        content, faults = bytearray(file.content), self.server.faults
        if file.path in faults.corrupt and faults.corrupt_times > 0:
            faults.corrupt_times -= 1
            content[len(content) // 2] ^= 1
        start, size = 0, len(content)
        match = re.fullmatch(r"bytes=([0-9]+)-", self.headers.get("Range", ""))
        if match and faults.ranges:
            start = int(match[1])
        self.send_response(206 if match and faults.ranges else 200)
        self.send_header("Content-Length", str(size - start))
        self.send_header("ETag", f'"{file.sha256 if file.lfs else file.blob}"')
        if match and faults.ranges:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.end_headers()
        if self.command == "GET":
            self._body(f"{model}/{file.path}", bytes(content[start:]))

    def _body(self, key: str, content: bytes) -> None:
        faults = self.server.faults
        for begin in range(0, len(content), _BLOCK):
            if faults.cut_after and begin >= faults.cut_after:
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            block = content[begin : begin + _BLOCK]
            self.wfile.write(block)
            with self.server.lock:
                self.server.sent[key] += len(block)
            if faults.bytes_per_second:
                time.sleep(len(block) / faults.bytes_per_second)

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        self._json(status, {"error": message}, headers)

    def _json(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(data).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Tests read `requests`."""


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--root", type=Path, required=True, help="folder with <org>/<name>/ models")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8900, help="port, 0 for a free one")
    parser.add_argument("--cdn", default="", help="base URL that clients reach this server by, as the CDN")
    options = parser.parse_args()
    server = HubServer(options.root, options.port, options.host, options.cdn)
    print(server.url, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
