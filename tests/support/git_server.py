"""Git repositories over HTTP, by git's own program (git-http-backend(1)): what Flux and Argo CD read."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class GitServer:
    """Bare repositories in a folder; `url` is that of the folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url

    def publish(self, name: str, content: Path) -> None:
        """Commit all of the folder `content` to the repository `name`, branch main."""
        bare = self.folder / f"{name}.git"
        if not bare.exists():
            _git("init", "--quiet", "--bare", "--initial-branch=main", str(bare))
        of = (f"--git-dir={bare}", f"--work-tree={content}")
        _git(*of, "add", "--all", ".")
        author = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
        _git(*author, *of, "commit", "--quiet", "--message=changed")


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True)


@contextmanager
def serving(folder: Path) -> Iterator[GitServer]:
    """The server, on a port of this host, while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        """CGI (RFC 3875) of git-http-backend."""

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            length = int(self.headers.get("Content-Length", 0))
            variables = {
                "GIT_PROJECT_ROOT": str(folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(length),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            command, body = ["git", "http-backend"], self.rfile.read(length)
            done = subprocess.run(command, env=os.environ | variables, input=body, capture_output=True, check=True)
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield GitServer(folder, f"http://127.0.0.1:{server.server_address[1]}")
    server.shutdown()
    server.server_close()
