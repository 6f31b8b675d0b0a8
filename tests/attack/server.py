"""A server to attack: the real binary in a sandbox, and the ways to speak to it. Python's standard library only."""

import base64
import http.client
import json
import os
import pathlib
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time

START_SECONDS = 60
# What nobody but the owner may get to see; put into files and variables that attacks try to read.
SECRET = "SECRET-" + secrets.token_hex(12)


class Succeeded(Exception):
    """The attack has got what it wanted."""


class Answer:
    """An answer over HTTP."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, dict(headers), body
        # A header that may come more than once.
        self.cookies = [value.split(";")[0] for name, value in headers if name.lower() == "set-cookie"]

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")


class Server:
    """A running `qd up`. Use it as a context, so that it and all that it has started end."""

    def __init__(self, binary):
        self.binary = os.path.abspath(binary)
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="qd-attack-"))
        self.home = self.root / "home"
        self.work = self.root / "work"
        self.socket_path = self.root / "runner.sock"
        for directory in (self.home, self.work):
            directory.mkdir()
        (self.home / ".ssh").mkdir()
        (self.home / ".ssh" / "id").write_text(SECRET)
        self.numbers = iter(range(1, 1_000_000))
        environment = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.root),
            "QD_DATA_DIR": str(self.root / "data"),
            "QD_RUNNER_SOCKET": str(self.socket_path),
            "QD_PI_COMMAND": str(self.root / "no-such-pi"),
            "ATTACK_API_KEY": SECRET,
        }
        self.stderr_file = open(self.root / "stderr", "wb")
        self.process = subprocess.Popen(
            [self.binary, "up", "--ready-json", "--listen", "127.0.0.1:0"],
            env=environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.stderr_file,
        )
        is_ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if is_ready else b""
        if not line:
            self.__exit__()
            raise RuntimeError(f"{binary} did not start")
        ready = json.loads(line)
        self.token = ready["token"]
        self.host, port = ready["url"].split("://")[1].split(":")
        self.port = int(port)
        self.drain = threading.Thread(target=self.process.stdout.read, daemon=True)
        self.drain.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stderr_file.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def is_alive(self):
        return self.process.poll() is None

    def name(self, prefix):
        """A name that nothing has yet."""
        return f"{prefix}{next(self.numbers)}"

    def directory(self, prefix):
        """A new directory below the work directory."""
        path = self.work / self.name(prefix)
        path.mkdir()
        return path

    # HTTP

    def http(self, method, path, token=None, body=None, headers=None, timeout=60):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            headers = dict(headers or {})
            if token:
                headers["Authorization"] = f"Bearer {token}"
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
                headers["Content-Type"] = "application/json"
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.getheaders(), answer.read())
        finally:
            connection.close()

    def ask(self, token, cmd, timeout=60, **fields):
        """A canonical command; its answer, which may be a refusal."""
        return self.http("POST", "/api/commands", token, {"cmd": cmd, **fields}, timeout=timeout).json()

    def must(self, token, cmd, **fields):
        """The same for a command that is part of the scenery and must succeed: its data."""
        answer = self.ask(token, cmd, **fields)
        if not answer.get("success"):
            raise RuntimeError(f"{cmd} failed: {answer}")
        return answer.get("data") or {}

    # People

    def scoped_token(self, *scopes):
        """A token of the owner with these scopes."""
        body = {"name": self.name("token"), "scopes": list(scopes)}
        return self.http("POST", "/api/tokens", self.token, body).json()["token"]

    def person(self, role):
        """A new account: its name, its password and the token of a login."""
        name, password = self.name(role), "correct horse battery"
        self.http("POST", "/api/people", self.token, {"username": name, "password": password, "role": role})
        answer = self.login(name, password)
        return name, password, answer.json()["access_token"]

    def login(self, name, password):
        return self.http("POST", "/auth/login", body={"username": name, "password": password})

    # Sessions

    def session(self, cwd=None, token=None, **config):
        config = {"harness": "demo", "cwd": str(cwd or self.work), **config}
        return self.must(token or self.token, "session.create", config=config)["session_id"]

    def program(self, cwd, source):
        """Starts a Python program as a session of the owner; its session."""
        path = pathlib.Path(cwd) / "program.py"
        path.write_text(source)
        return self.session(cwd, harness="pty", run={"argv": ["python3", str(path)]})

    # Sockets

    def raw(self, timeout=20):
        stream = socket.create_connection((self.host, self.port), timeout=timeout)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return stream

    def upgrade(self, path, headers=None, timeout=20):
        """Asks for a WebSocket: the status, the body of a refusal, and the stream."""
        stream = self.raw(timeout)
        lines = {
            "Host": f"{self.host}:{self.port}",
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        stream.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        answer = http.client.HTTPResponse(stream, method="GET")
        answer.begin()
        if answer.status == 101:
            return 101, "", stream
        body = answer.read().decode("utf-8", "replace")
        stream.close()
        return answer.status, body, None

    def local(self):
        """The runner's socket."""
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(20)
        stream.connect(str(self.socket_path))
        return stream


def text_frame(text):
    """A client's WebSocket frame."""
    payload = text if isinstance(text, bytes) else text.encode()
    mask = secrets.token_bytes(4)
    if len(payload) < 126:
        head = bytes([0x81, 0x80 | len(payload)])
    elif len(payload) < 65536:
        head = bytes([0x81, 0xFE]) + len(payload).to_bytes(2, "big")
    else:
        head = bytes([0x81, 0xFF]) + len(payload).to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def wait_until(condition, seconds):
    """Whether the condition becomes true in this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def git(directory, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", *arguments],
        cwd=directory,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"},
    )


def expect_no(marker, what):
    """The attack has succeeded if its program has left its mark."""
    if pathlib.Path(marker).exists():
        raise Succeeded(what)


def expect_hidden(answer, what):
    """The attack has succeeded if the answer has the secret, also as base64."""
    text = answer.text if isinstance(answer, Answer) else json.dumps(answer)
    coded = base64.b64encode(SECRET.encode()).decode().rstrip("=")[:-4]
    if SECRET in text or coded in text:
        raise Succeeded(what)
