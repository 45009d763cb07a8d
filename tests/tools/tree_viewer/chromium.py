"""Chromium without a window, driven through its DevTools pipe: the content of a page, its log and its requests."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

_DEADLINE = 60  # seconds for one answer; a loaded machine starts a browser slowly


def find():
    """The browser's path, or None."""
    return shutil.which("chromium")


class Browser:
    """One browser with one page. A context manager."""

    def __init__(self):
        self.exceptions, self.requests, self.log = [], [], []
        self._number, self._buffer, self._loads = 0, b"", 0
        self._session = None

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # The browser reads commands from file descriptor 3 and writes answers to file descriptor 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", find(),
             "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}",
             "about:blank"],
            env=dict(os.environ, HOME=self._folder.name), pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        os.close(self._out)  # the browser ends when its command pipe is closed
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder.name, ignore_errors=True)  # a helper may still write there
        self._folder.cleanup()

    def _attach(self):
        page = next(target for target in self.call("Target.getTargets")["targetInfos"]
                    if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # behaves like a focused window

    def _receive(self):
        deadline = time.monotonic() + _DEADLINE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self._in, 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError("the browser does not answer")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        name, values = event.get("method"), event.get("params", {})
        if name == "Page.loadEventFired":
            self._loads += 1
        elif name == "Runtime.exceptionThrown":
            self.exceptions.append(values["exceptionDetails"])
        elif name == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif name == "Log.entryAdded":
            self.log.append(values["entry"]["text"])

    def call(self, method, **values):
        """Sends a command of the DevTools protocol. Returns its result."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": values}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._out, json.dumps(command).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != self._number:
                self._note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(self, path, fragment="", scripts=True, scheme="light", width=1280):
        """Loads a file, and waits until its scripts have run."""
        self.exceptions, self.requests, self.log = [], [], []
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=False)
        self._load("about:blank")  # otherwise another fragment of the same page would load nothing
        self.requests = []
        self._load(path.absolute().as_uri() + fragment)

    def _load(self, url):
        loads = self._loads
        self.call("Page.navigate", url=url)
        while self._loads == loads:
            self._note(self._receive())

    def evaluate(self, expression):
        """Returns the value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def press(self, key):
        """Presses a key: "Tab", "ArrowRight", ..."""
        code = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}))

    def screenshot(self, path, selector="html", margin=0):
        """Returns a PNG of an element with a margin around it."""
        box = self.evaluate(f"""(() => {{
            const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();
            return [box.x + scrollX, box.y + scrollY, box.width, box.height]; }})()""")
        clip = {"x": max(0, box[0] - margin), "y": max(0, box[1] - margin),
                "width": box[2] + 2 * margin, "height": box[3] + 2 * margin, "scale": 1}
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(picture["data"]))
