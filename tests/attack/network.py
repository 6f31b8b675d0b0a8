"""Items 0, 4, 7, 8, 9, 10 and 11: what strangers, browsers and hosts can do over the network, and what is written down."""

import contextlib
import hashlib
import json
import socket
import threading
import time

from server import Server, Succeeded, text_frame, wait_until

# Keys of a browser's subscription: a point on the curve, and sixteen bytes.
PUSH_KEYS = {
    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
}


def nobody(server: Server):
    closed = ["/api/sessions", "/api/people", "/api/tokens", "/api/audit", "/api/me", "/api/push", "/runs", "/metrics"]
    for path in closed:
        for token in (None, "x", "0" * 64):
            answer = server.http("GET", path, token)
            if answer.status == 200:
                raise Succeeded(f"GET {path} was answered without a right token")
    for path in ("/ws/mux", "/ws/app", "/ws/pi", "/ws/runner", "/ws/host?host_id=x&host_token="):
        status, _, stream = server.upgrade(path)
        if stream:
            stream.close()
            raise Succeeded(f"{path} was opened without a token ({status})")
    if server.http("GET", f"/api/me?token={server.token}").status == 200:
        raise Succeeded("a token in the address of a request was taken")


def other_origins(server: Server):
    bearer = {"Authorization": f"Bearer {server.token}"}
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Origin": "null"}):
        status, _, stream = server.upgrade("/ws/mux", {**bearer, **headers})
        if stream:
            stream.close()
            raise Succeeded(f"a socket was opened with {headers} ({status})")
        answer = server.http("POST", "/api/commands", server.token, {"cmd": "list_sessions"}, headers)
        if answer.status == 200:
            raise Succeeded(f"a command was taken with {headers}")


def permissions(server: Server):
    viewer, view = server.person("viewer")[2], server.scoped_token("view")
    session = server.session(server.directory("session"))
    commands = [
        ("prompt", {"message": "x"}),
        ("session.close", {}),
        ("session.delete", {}),
        ("fs.write", {"path": "x", "content": "x"}),
        ("host.bash", {"command": "true"}),
        ("host.logs", {}),
        ("input_response", {"request_id": "x", "confirmed": True}),
    ]
    for token in (viewer, view):
        for cmd, fields in commands:
            claims = {"user_role": "owner", "user_id": "owner", "connection_id": "c1"}
            answer = server.ask(token, cmd, session_id=session, **fields, **claims)
            if answer.get("success") or answer.get("code") != "permission_denied":
                raise Succeeded(f"{cmd} was not refused to somebody who may only look: {answer}")
        for method, path, body in (
            ("POST", "/api/tokens", {"name": server.name("t")}),
            ("POST", "/api/people", {"username": "x", "password": "x" * 12, "role": "owner"}),
            ("POST", "/api/runners/invites", {}),
        ):
            answer = server.http(method, path, token, body)
            if answer.status == 200 and token == view or answer.status == 200 and path != "/api/tokens":
                raise Succeeded(f"{method} {path} was not refused to somebody who may only look")


def garbage(server: Server):
    texts = ["", "{", "[]", "null", '{"channel":7}', '{"channel":"agent","cmd":"x","cmd":"y"}', "[" * 100_000,
             '{"channel":"agent","cmd":"get_state","session_id":"\\ud800","x":1e999}', "\0" * 1000, "x" * 100_000]
    for path in ("/ws/mux", "/ws/app", "/ws/pi"):
        status, _, stream = server.upgrade(path, {"Authorization": f"Bearer {server.token}"})
        if status != 101:
            raise RuntimeError(f"{path}: {status}")
        with contextlib.suppress(OSError):
            for text in texts:
                stream.sendall(text_frame(text))
            stream.sendall(b"\xff" * 200)
        stream.close()
    with contextlib.suppress(OSError):
        with server.local() as stream:
            for text in texts:
                stream.sendall(text.encode("utf-8", "replace").replace(b"\n", b"") + b"\n")
            stream.sendall(b"\xff\xfe{\x00}\n")
    if server.http("GET", "/healthz").status != 200 or not server.is_alive():
        raise Succeeded("the server does not answer after garbage")


def sockets_that_do_not_read(server: Server):
    """Six hundred strangers ask for something long again and again, and read nothing."""
    request = f"GET /api/openapi.json HTTP/1.1\r\nHost: {server.host}:{server.port}\r\n\r\n".encode() * 400
    sockets = []

    def one():
        with contextlib.suppress(OSError):
            stream = server.raw(5)
            sockets.append(stream)
            stream.setblocking(False)
            stream.send(request)

    try:
        for _ in range(600):
            one()
        # They have their places now, if they get any.
        deadline, is_let_in = time.monotonic() + 10, False
        while time.monotonic() < deadline and not is_let_in:
            with contextlib.suppress(OSError):
                is_let_in = server.http("GET", "/api/me", server.token, timeout=2).status == 200
        if not is_let_in:
            raise Succeeded("with 600 sockets that do not read, the owner is not let in")
    finally:
        for stream in sockets:
            stream.close()


def half_a_head(server: Server):
    """Strangers that never finish their request keep nobody out for longer than they may take for it."""
    sockets = []
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                stream = server.raw(5)
                stream.send(b"GET / HTTP/1.1\r\nHost: ")
                sockets.append(stream)
        if server.http("GET", "/api/me", server.token, timeout=20).status != 200:
            raise Succeeded("with 300 half requests the owner is not let in")
    finally:
        for stream in sockets:
            stream.close()


def squatted_host(server: Server):
    status, _, stream = server.upgrade("/ws/host?host_id=desk&host_token=the-token-of-a-squatter")
    answer = server.http("POST", "/api/hosts/desk/confirm", server.token, {})
    if stream:
        stream.close()
    if answer.status == 200 and "fingerprint" not in answer.text:
        raise Succeeded("the name of a host was confirmed, and nobody saw whose token it has")


def cookie(server: Server):
    name, password, _ = server.person("operator")
    return "; ".join(server.login(name, password).cookies)


def cookie_from_another_port(server: Server):
    """A program on another port of this name gets the login cookie, and sends it where it belongs."""
    headers = {"Cookie": cookie(server), "Origin": f"http://{server.host}:{server.port}"}
    session = server.session(server.directory("session"))
    body = {"cmd": "prompt", "session_id": session, "message": "hello"}
    if server.http("POST", "/api/commands", None, body, headers).json().get("success"):
        raise Succeeded("the cookie alone was enough to send a prompt")
    status, _, stream = server.upgrade("/ws/mux", headers)
    if stream:
        stream.close()
        raise Succeeded(f"the cookie alone was enough to open a socket ({status})")


@contextlib.contextmanager
def listener():
    """A service of the hub's own network; counts who comes."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(0.1)
        seen, is_over = [], threading.Event()

        def serve():
            while not is_over.is_set():
                with contextlib.suppress(OSError):
                    stream, _ = service.accept()
                    seen.append(1)
                    stream.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield service.getsockname()[1], seen
        finally:
            is_over.set()
            thread.join()


def subscribe(server: Server, headers, endpoint):
    body = {"endpoint": endpoint, "keys": PUSH_KEYS, "topics": ["done"], "content": False}
    return server.http("POST", "/api/push/subscriptions", None, body, headers)


def push_to(server: Server, hosts):
    headers = {"Cookie": cookie(server), "Origin": f"http://{server.host}:{server.port}"}
    if subscribe(server, headers, "https://push.example/1").status not in (200, 201):
        # A login needs more than its cookie for this; the one of a program is a bearer.
        name, password, token = server.person("operator")
        headers = {"Authorization": f"Bearer {token}"}
        if subscribe(server, headers, "https://push.example/1").status not in (200, 201):
            raise RuntimeError("nobody can subscribe")
    for host in hosts:
        with listener() as (port, seen):
            subscribe(server, headers, f"https://{host}:{port}/x")
            server.http("POST", "/api/push/test", None, {}, headers, timeout=90)
            wait_until(lambda: seen, 0.5)
            if seen:
                raise Succeeded(f"the hub called a service of its own network at https://{host}")


def push_to_addresses(server: Server):
    push_to(server, ["127.0.0.1", "[::1]", "localhost", "LOCALHOST", "[::ffff:127.0.0.1]", "0.0.0.0"])


def push_to_odd_addresses(server: Server):
    push_to(server, ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost."])


def names_of_runners(server: Server):
    code = server.http("POST", "/api/runners/invites", server.token, {}).json()["code"]
    key_hash = hashlib.sha256(b"the right key").hexdigest()
    body = {"code": code, "runner_id": "known", "key_hash": key_hash, "hostname": "h", "os": "linux", "version": "0.1.0"}
    joined = server.http("POST", "/api/runners/join", None, body)
    if joined.status != 200:
        raise RuntimeError(f"a runner cannot join: {joined.text}")

    def knock(name):
        answers = []
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer " + "0" * 64}):
            status, body, stream = server.upgrade("/ws/runner", {"X-Qd-Runner": name, **headers})
            if stream:
                raise Succeeded("a runner link was opened with a wrong key")
            answers.append((status, body.replace(name, "NAME")))
        return answers

    unknown = knock("nobody")
    for name in ("known", "local"):
        answers = knock(name)
        for answer, expected in zip(answers, unknown):
            if answer != expected:
                raise Succeeded(f"strangers can tell that there is a runner '{name}': {answer}, not {expected}")


def lock_out_by_others(server: Server):
    name, password, _ = server.person("operator")
    for number in range(40):
        server.login(f"stranger{number % 7}", "wrong")
    if server.login(name, password).status != 200:
        raise Succeeded("a stranger behind the same address locked somebody out")


def guesses(server: Server):
    name, password = server.name("operator"), "correct horse battery"
    server.http("POST", "/api/people", server.token, {"username": name, "password": password, "role": "operator"})
    answers = {(answer.status, answer.text) for answer in (server.login(name, "wrong"), server.login("nobody", "wrong"))}
    if len(answers) != 1:
        raise Succeeded(f"an unknown name is told from a wrong password: {answers}")
    last = [server.login(name, "wrong").status for _ in range(30)]
    if 429 not in last:
        raise Succeeded(f"passwords can be tried without end: {last}")


def without_a_trace(server: Server):
    name, _, token = server.person("operator")
    # Where those who are no owner may work.
    session = server.session(server.home, token=token)
    steps = [("session.create", None), ("prompt", {"message": "hello"}), ("set_session_name", {"name": "x"}),
             ("abort", {}), ("session.close", {}), ("session.delete", {})]
    for cmd, fields in steps:
        if fields is not None:
            server.ask(token, cmd, session_id=session, **fields)
    missing = []

    def look():
        text = server.http("GET", "/api/audit?limit=500", server.token).text
        rows = [json.dumps(entry) for entry in (json.loads(text).get("entries") or [])]
        missing[:] = [cmd for cmd, _ in steps if not any(cmd in row and name in row for row in rows)]
        return not missing

    if not wait_until(look, 5):
        raise Succeeded(f"the audit log does not say that {name} did {', '.join(missing)}")


ATTACKS = (
    ("0.1", "no token, a wrong one, one in the address", nobody),
    ("0.2", "pages of other origins, and other host names", other_origins),
    ("0.3", "more than the role or the scope allows", permissions),
    ("0.4", "garbage on every socket", garbage),
    ("0.5", "guessing names and passwords", guesses),
    ("4.1", "300 half requests", half_a_head),
    ("4.2", "600 sockets that never read", sockets_that_do_not_read),
    ("7.1", "taking the name of a host before it comes", squatted_host),
    ("8.1", "the login cookie from another port", cookie_from_another_port),
    ("9.1", "push services at addresses of this machine", push_to_addresses),
    ("9.2", "the same, spelled oddly", push_to_odd_addresses),
    ("10.1", "names of runners told apart before the key", names_of_runners),
    ("10.2", "locking somebody out from the same address", lock_out_by_others),
    ("11.1", "acting without a trace in the audit log", without_a_trace),
)
