"""Items 2, 3, 5 and 6: the machine behind the runner, its files, and programs inside sessions."""

import json
import pathlib
import threading

from server import SECRET, Server, Succeeded, expect_hidden, wait_until


def paths_out_of_a_session(server: Server):
    viewer = server.person("viewer")[2]
    directory = server.directory("session")
    outside = server.root / server.name("outside")
    outside.mkdir()
    (outside / "file").write_text(SECRET)
    (directory / "link").symlink_to(outside)
    (directory / "file").symlink_to(outside / "file")
    session = server.session(directory)
    for path in ("../" * 9 + str(outside / "file")[1:], str(outside / "file"), "link/file", "file", "./link/../link/file"):
        expect_hidden(server.ask(viewer, "fs.read", session_id=session, path=path), f"fs.read {path}")
        download = server.http("GET", f"/api/sessions/{session}/file?path={path}", viewer)
        expect_hidden(download, f"a download of {path}")


def environment_of_the_server(server: Server):
    operator = server.person("operator")[2]
    answer = server.ask(operator, "session.create", config={"harness": "demo", "cwd": "/proc"})
    session = (answer.get("data") or {}).get("session_id")
    if session is None:
        return
    for name in ("environ", "cmdline", "maps", "task/../environ"):
        path = f"{server.process.pid}/{name}"
        answer = server.ask(operator, "fs.read", session_id=session, path=path)
        expect_hidden(answer, f"an operator read {path} of /proc")
        if answer.get("success"):
            raise Succeeded(f"an operator read {path} of /proc")


def kernel_file_systems(server: Server):
    operator = server.person("operator")[2]
    for root in ("/proc", "/proc/self", "/sys", "/dev", "/sys/kernel"):
        answer = server.ask(operator, "fs.list", session_id="_system", root=root, path=".")
        if answer.get("success"):
            raise Succeeded(f"an operator listed {root} without a session")


def viewer_reads_home(server: Server):
    viewer = server.person("viewer")[2]
    read_home(server, viewer, "a viewer")


def view_token_reads_home(server: Server):
    read_home(server, server.scoped_token("view"), "a token with the scope view")


def read_home(server: Server, token, who):
    server.session(server.directory("session"))
    for root, path in ((server.home, ".ssh/id"), (server.home / ".ssh", "id")):
        answer = server.ask(token, "fs.read", session_id="_system", root=str(root), path=path)
        expect_hidden(answer, f"{who} read {root}/{path}")
    answer = server.ask(token, "fs.search", session_id="_system", root=str(server.home), query="SECRET", include_hidden=True)
    expect_hidden(answer, f"{who} searched {server.home}")


# What a program inside a session sends; it prints the answers as lines of JSON.
INSIDE = """
import json, os, socket, sys
def ask(line):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(4)
    data = b""
    try:
        stream.connect(os.environ.get("QD_SOCKET", PATH))
        stream.sendall((json.dumps(line) + "\\n").encode())
        while True:
            piece = stream.recv(65536)
            if not piece:
                break
            data += piece
            for text in data.split(b"\\n")[:-1]:
                answer = json.loads(text)
                if answer.get("type") == "response" or answer.get("event") == "response" or answer.get("type") == "error":
                    return answer
    except OSError as error:
        return {"timeout": str(error)}
    return {}
with open("answers.part", "w") as out:
    for line in LINES:
        out.write(json.dumps(ask(line)) + "\\n")
os.rename("answers.part", "answers")
"""


def from_inside(server: Server, lines, program=INSIDE):
    """Answers to what a program inside a session asks at the runner's socket."""
    directory = server.directory("inside")
    source = program.replace("PATH", repr(str(server.socket_path))).replace("LINES", repr(lines))
    server.program(directory, source)
    if not wait_until((directory / "answers").exists, 60):
        raise RuntimeError("the program inside the session did not end")
    return [json.loads(line) for line in (directory / "answers").read_text().splitlines()]


def line(cmd, session, **fields):
    return {"type": "command", "id": "1", "cmd": cmd, "session_id": session, **fields}


def steer_from_inside(server: Server):
    other = server.session(server.directory("other"))
    config = {"harness": "demo", "cwd": str(server.work)}
    lines = [
        line("prompt", other, message="hello"),
        line("session.create", "", config=config),
        line("session.close", other),
        line("input_response", other, request_id="x", confirmed=True),
    ]
    for sent, answer in zip(lines, from_inside(server, lines)):
        if answer.get("success"):
            raise Succeeded(f"a program inside a session did {sent['cmd']}")


def read_another_session_from_inside(server: Server):
    directory = server.directory("other")
    (directory / "file").write_text(SECRET)
    other = server.session(directory)
    lines = [line("fs.read", other, path="file"), line("fs.read", "_system", root=str(directory), path="file")]
    for sent, answer in zip(lines, from_inside(server, lines)):
        expect_hidden(answer, f"a program inside a session read a file of another one: {sent}")


def shell_in_another_session_from_inside(server: Server):
    directory = server.directory("other")
    other = server.session(directory, gate="open")
    from_inside(server, [line("host.bash", other, command="touch started")])
    if (directory / "started").exists():
        raise Succeeded("a program inside a session ran a command in another one, and nobody was asked")


def unasked_from_inside(server: Server):
    directory = server.directory("inside-open")
    source = INSIDE.replace("PATH", repr(str(server.socket_path)))
    source = source.replace("LINES", '[{"type": "command", "id": "1", "cmd": "host.bash", "session_id": '
                            'open("session").read(), "command": "touch started"}]')
    source = "import os, time\nwhile not os.path.exists('session'): time.sleep(0.05)\n" + source
    session = None
    (directory / "program.py").write_text(source)
    config = {"harness": "pty", "cwd": str(directory), "gate": "open", "run": {"argv": ["python3", "program.py"]}}
    session = server.must(server.token, "session.create", config=config)["session_id"]
    (directory / "session.part").write_text(session)
    (directory / "session.part").rename(directory / "session")
    if not wait_until((directory / "answers").exists, 60):
        raise RuntimeError("the program inside the session did not end")
    if (directory / "started").exists():
        raise Succeeded("a program inside a session used the shell, and nobody was asked")


# A process of the session connects while the runner takes nobody, and is dead when the runner looks who it was.
ORPHAN = """
import json, os, socket, time
path = os.environ.get("QD_SOCKET", PATH)
def connect():
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(5)
    stream.connect(path)
    return stream
answers = []
try:
    held = [connect() for _ in range(64)]
    time.sleep(0.5)
    orphan = socket.socket(socket.AF_UNIX)
    orphan.settimeout(5)
    child = os.fork()
    if child == 0:
        try:
            orphan.connect(path)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    for stream in held:
        stream.close()
    for line in LINES:
        orphan.sendall((json.dumps(line) + "\\n").encode())
        data = b""
        while b"\\n" not in data:
            piece = orphan.recv(65536)
            if not piece:
                break
            data += piece
        answers.append(json.loads(data.split(b"\\n")[0] or b"{}"))
except OSError as error:
    answers.append({"error": str(error)})
with open("answers.part", "w") as out:
    for answer in answers:
        out.write(json.dumps(answer) + "\\n")
os.rename("answers.part", "answers")
"""


def dead_peer(server: Server):
    other = server.session(server.directory("other"))
    lines = [line("prompt", other, message="hello")]
    for answer in from_inside(server, lines, ORPHAN):
        if answer.get("success"):
            raise Succeeded("a program inside a session passed for a person's, because its process had died")


def question_of(server: Server, session, seconds=20):
    """The first open question of a session."""
    found = []

    def look():
        state = server.ask(server.token, "get_state", session_id=session).get("data") or {}
        found[:] = state.get("pending_input") or (state.get("state") or {}).get("pending_input") or []
        return found

    wait_until(look, seconds)
    return found[0]["request_id"] if found else None


def in_background(work):
    result = []

    def run():
        try:
            result.append(work())
        except OSError as error:
            result.append({"lost": str(error)})

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, result


def allowed_for_another(server: Server):
    first, second = server.person("operator")[2], server.person("operator")[2]
    directory = server.directory("gated")
    session = server.session(directory)
    thread, _ = in_background(lambda: server.ask(first, "host.bash", session_id=session, command="true"))
    question = question_of(server, session)
    if question is None:
        raise RuntimeError("the first command asked nobody")
    server.must(server.token, "input_response", session_id=session, request_id=question, decision="approve_for_session")
    thread.join(20)
    ask = lambda: server.ask(second, "host.bash", session_id=session, command="touch started", timeout=5)
    in_background(ask)[0].join(20)
    if (directory / "started").exists():
        raise Succeeded("what was allowed to one operator for the session was allowed to another")


def allowed_in_spite_of_ask(server: Server):
    operator = server.person("operator")[2]
    directory = server.directory("gated")
    session = server.session(directory)
    thread, _ = in_background(lambda: server.ask(operator, "host.bash", session_id=session, command="true"))
    question = question_of(server, session)
    if question is None:
        raise RuntimeError("the first command asked nobody")
    server.must(server.token, "input_response", session_id=session, request_id=question, decision="approve_for_session")
    thread.join(20)
    ask = lambda: server.ask(operator, "host.bash", session_id=session, command="touch started", ask=True, timeout=5)
    in_background(ask)[0].join(20)
    if (directory / "started").exists():
        raise Succeeded("a command that wanted to be asked about was not")


ATTACKS = (
    ("2.1", "/proc as the directory of a session", environment_of_the_server),
    ("2.2", "/proc, /sys and /dev without a session", kernel_file_systems),
    ("2.3", "paths and links out of a session's directory", paths_out_of_a_session),
    ("3.1", "a viewer reads the home directory", viewer_reads_home),
    ("3.2", "a token with the scope view reads the home directory", view_token_reads_home),
    ("5.1", "a program inside a session steers, starts and answers", steer_from_inside),
    ("5.2", "a program inside a session reads another session's file", read_another_session_from_inside),
    ("5.3", "a program inside a session uses another session's shell", shell_in_another_session_from_inside),
    ("5.4", "a program inside a session is not asked in its own", unasked_from_inside),
    ("5.5", "a process of a session that is dead when it is looked at", dead_peer),
    ("6.1", "allowed for the session to one, used by another", allowed_for_another),
    ("6.2", "allowed for the session beats ask", allowed_in_spite_of_ask),
)
