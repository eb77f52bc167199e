"""A headless Chromium for the tests of pages: loads files, runs JavaScript in them, takes pictures, keeps what goes
wrong. It is spoken to by the DevTools protocol over two pipes: JSON texts that end with a NUL."""
import base64
import json
import os
import shutil
import subprocess
import tempfile

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program():
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """`complaints`: exceptions, messages of the console and refused requests of the page that is loaded."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        to_read, self.to = os.pipe()
        self.come_from, to_write = os.pipe()
        # The protocol's descriptors are 3 and 4.
        moved = [os.dup(to_read), os.dup(to_write)]
        command = ["bash", "-c", f'exec "$0" "$@" 3<&{moved[0]} 4>&{moved[1]}', program(), "--headless=new",
                   "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                   "--remote-debugging-pipe",
                   f"--user-data-dir={self.folder.name}"]
        self.process = subprocess.Popen(command, pass_fds=moved, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for descriptor in (to_read, to_write, *moved):
            os.close(descriptor)
        self.rest, self.last_id, self.session, self.complaints = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(30)
        os.close(self.to)
        os.close(self.come_from)
        self.folder.cleanup()

    def receive(self):
        while b"\0" not in self.rest:
            part = os.read(self.come_from, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, method, of):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(of["exceptionDetails"].get("exception", {}).get("description", str(of)))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(str(of["args"]))
        elif method == "Log.entryAdded":
            self.complaints.append(of["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not of["request"]["url"].startswith("file:"):
            self.complaints.append("asked for " + of["request"]["url"])

    def call(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def run(self, script):
        """The value of the expression, when it is settled."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", str(answer)))
        return answer["result"].get("value")

    def load(self, path, width=1400, height=900, dark=False):
        self.complaints = []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.receive().get("method") != "Page.loadEventFired":
            pass
        self.run("""new Promise(done => { const look = () => document.documentElement.dataset.ready ||
                 !document.getElementById('failure')?.hidden ? done() : setTimeout(look, 10); look(); })""")

    def press(self, key, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text if kind == "keyDown" else "")

    def picture(self, path, whole=True):
        image = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(image["data"]))
