"""Chromium without a screen, by ChromeDriver. The protocol is WebDriver: https://www.w3.org/TR/webdriver2/."""

import base64
import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from cluster.ports import free_port

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
PATIENCE = 60.0
# Nothing but the page is asked for: a machine may have no way out.
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    *QUIET,
]


class BrowserError(RuntimeError):
    """What ChromeDriver reports."""


class Browser:
    """One window; an `element` is what `find` returns."""

    def __init__(self, folder: Path) -> None:
        self._port, self._folder = free_port(), folder
        self._session = ""
        self._driver: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        log = self._folder / "chromedriver.log"
        # It ends with this process, however that ends; and with it, in namespaces of their own, all that it starts.
        bound = ["setpriv", "--pdeathsig", "KILL", "--", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = [*bound, "chromedriver", f"--port={self._port}", f"--log-path={log}"]
        self._driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        self.wait("ChromeDriver", lambda: self._call("GET", "/status")["ready"])
        options = {"args": [*FLAGS, f"--user-data-dir={self._folder / 'profile'}"]}
        wanted = {"acceptInsecureCerts": True, "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._driver
        try:
            if self._session:
                self._call("DELETE", self._session)
        finally:
            os.killpg(self._driver.pid, signal.SIGKILL)  # a group of its own: it and its Chromium
            self._driver.wait()

    def open(self, url: str) -> None:
        self._ask("POST", "/url", {"url": url})

    def find(self, css: str) -> str:
        """The first element, once there is one."""
        return str(
            self.wait(css, lambda: self._ask("POST", "/element", {"using": "css selector", "value": css}))[ELEMENT]
        )

    def click(self, css: str) -> None:
        self._ask("POST", f"/element/{self.find(css)}/click", {})

    def write(self, css: str, text: str) -> None:
        """Replace what a field holds."""
        element = self.find(css)
        self._ask("POST", f"/element/{element}/clear", {})
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        presses = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": presses}]})

    def text(self, css: str = "main") -> str:
        """What a person reads there; empty while it is not there."""
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", css))

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; a promise's value."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def log(self) -> list[str]:
        """Errors and warnings of the page since the last call, such as what its policy forbids."""
        entries = self._ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def scheme(self, name: str) -> None:
        """Prefer light or dark."""
        features = [
            {"name": "prefers-color-scheme", "value": name},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self._developer("Emulation.setEmulatedMedia", features=features)

    def size(self, width: int, height: int) -> None:
        self._developer(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))

    def wait(self, what: str, check: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """The first value of `check` that is true; AssertionError where there is none in time."""
        until, last = time.monotonic() + seconds, ""
        while time.monotonic() < until:
            try:
                if found := check():
                    return found
            except (BrowserError, OSError) as error:
                last = str(error)
            time.sleep(0.1)
        shown = self.text("body") if self._session else ""
        raise AssertionError(f"{what}: not within {seconds:.0f} s; {last}\n{shown}")

    def _developer(self, command: str, **parameters: Any) -> None:
        self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._call(method, f"{self._session}{path}", body)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise BrowserError(json.load(error)["value"]["message"]) from error
