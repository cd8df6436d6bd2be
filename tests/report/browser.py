"""A Chromium that is told what to do over a pipe (the DevTools protocol), so that one process serves many tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe"),
)
# Chromium reads commands from file 3 and answers in file 4.
START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


class Browser:
    """One page at a time, and what it complained about."""

    def __init__(self, chromium: str, profile: Path) -> None:
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        command = [chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        start = [sys.executable, "-c", START, str(read), str(write), *command]
        self._process = subprocess.Popen(start, pass_fds=(read, write), stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        self._left, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        page = next(each for each in self.do("Target.getTargets")["targetInfos"] if each["type"] == "page")
        attached = self.do("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.do(f"{domain}.enable")
        self.do("Emulation.setFocusEmulationEnabled", enabled=True)  # only what has the focus may copy

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._write)
        os.close(self._read)

    def open(self, page: Path, width: int = 1280, height: int = 900) -> None:
        """Show a page from disk, and wait until it is loaded."""
        self.resize(width, height)
        self.events = []
        self.do("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def resize(self, width: int, height: int = 900) -> None:
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        wanted = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        done = self.do("Runtime.evaluate", expression=expression, **wanted)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """A key, as from the keyboard."""
        for kind in ("keyDown", "keyUp"):
            self.do("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """A picture of the whole page."""
        size = self.do("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.do("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(b64decode(shot["data"]))

    @property
    def complaints(self) -> list[str]:
        """What is in the console: errors, warnings, and what the policy of the page refused."""
        texts = [event["params"]["entry"]["text"] for event in self.events if event["method"] == "Log.entryAdded"]
        thrown = [event["params"] for event in self.events if event["method"] == "Runtime.exceptionThrown"]
        called = [event["params"] for event in self.events if event["method"] == "Runtime.consoleAPICalled"]
        return texts + [json.dumps(each) for each in (*thrown, *called)]

    @property
    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def do(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command and wait for its answer; events on the way are kept."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        command = {"id": self._number, "method": method, "params": params, **session}
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                assert "error" not in message, f"{method}: {message['error']}"
                return dict(message["result"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            chunk = os.read(self._read, 1 << 16)
            assert chunk, "the browser has ended"
            self._left += chunk
        first, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        if "method" in message:
            self.events.append(message)
        return message
