"""A real browser, driven over its debugging pipe: no driver, no library, no port.

Chromium reads commands from descriptor 3 and writes answers and events to 4, as JSON that ends
with a zero byte (``--remote-debugging-pipe``).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Refused(Exception):
    """The browser did not do what it was told."""


class BetweenPages(Refused):
    """The page that was asked is gone or going, and the next one is not there yet."""


class Browser:
    """One tab. Use as a context manager."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp(prefix="nc-chromium-")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        self.process = subprocess.Popen(
            ["bash", "-c", 'exec chromium "$@" 3<&$IN 4>&$OUT', "bash",
             "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run",
             f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=[to_browser, from_browser],
            env={**os.environ, "IN": str(to_browser), "OUT": str(from_browser)},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    _session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._out)
        os.close(self._in)
        os.killpg(self.process.pid, signal.SIGKILL)  # the group that we have made for it
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, parameters)

    def show(self, url: str, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Open an address in a window of this size and wait until it is loaded."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme_feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[scheme_feature])
        self.value("window.isFormer = true")
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && !window.isFormer")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression is; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, seconds: float = 60) -> Any:
        """Its value, when it is true. A page may give way to the next one meanwhile."""
        give_up_at = time.monotonic() + seconds
        while True:
            with suppress(BetweenPages):
                if found := self.value(expression):
                    return found
            assert time.monotonic() < give_up_at, f"it did not come true: {expression}"
            time.sleep(0.02)

    def requests(self) -> list[str]:
        """Every address that was asked for since ``show``."""
        self.value("0")  # take in what has happened
        sent = (e["params"] for e in self.events if e["method"] == "Network.requestWillBeSent")
        return [each["request"]["url"] for each in sent]

    def complaints(self) -> list[str]:
        """Errors of scripts and of the content policy since ``show``."""
        self.value("0")
        return [
            str(event["params"])
            for event in self.events
            if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def screenshot(self, path: Path) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            said = answer["error"]["message"]
            raise BetweenPages(said) if "context" in said or "navigated" in said else Refused(said)
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            more = os.read(self._in, 65536)
            assert more, "the browser has gone"
            self._buffer += more
        message, self._buffer = self._buffer.split(b"\0", 1)
        found: dict[str, Any] = json.loads(message)
        return found
