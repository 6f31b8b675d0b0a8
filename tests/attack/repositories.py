"""Item 1: hostile repositories that a viewer looks at."""

import json
import os
import pathlib

from server import SECRET, Server, Succeeded, expect_hidden, expect_no, git

LOOKS = (("git.status", {}), ("git.diff", {}), ("git.diff", {"staged": True}), ("git.log", {}))


def repository(server: Server):
    """A repository with one file that differs from its commit, and a mark that hostile programs leave."""
    directory = server.directory("repo")
    git(directory, "init", "-q")
    (directory / "file.txt").write_text("one\n")
    git(directory, "add", ".")
    git(directory, "commit", "-qm", "first")
    (directory / "file.txt").write_text("two, and longer\n")
    marker = server.root / server.name("started")
    return directory, marker


def look(server: Server, directory, what):
    """A viewer looks at everything; what git said is returned."""
    viewer = server.person("viewer")[2]
    session = server.session(directory)
    answers = [server.ask(viewer, cmd, session_id=session, **fields) for cmd, fields in LOOKS]
    for answer in answers:
        expect_hidden(answer, what)
    return answers


def config(directory, text):
    with open(pathlib.Path(directory) / ".git" / "config", "a", encoding="utf-8") as file:
        file.write(text)


def command(marker):
    return f"touch {marker}; cat"


def filter_with_a_name(server):
    directory, marker = repository(server)
    (directory / ".gitattributes").write_text("* filter=evil\n")
    config(directory, f'[filter "evil"]\n\tclean = {command(marker)!s}\n\tsmudge = {command(marker)!s}\n')
    look(server, directory, "the secret is shown")
    expect_no(marker, "a filter ran when a viewer looked")


def filter_without_a_name(server):
    directory, marker = repository(server)
    (directory / ".gitattributes").write_text("* filter=\n")
    config(directory, f'[filter ""]\n\tclean = "{command(marker)}"\n\tprocess = "{command(marker)}"\n')
    look(server, directory, "the secret is shown")
    expect_no(marker, "a filter with an empty name ran when a viewer looked")


def fsmonitor_and_hooks(server):
    directory, marker = repository(server)
    program = directory / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    for hook in ("post-index-change", "post-checkout", "fsmonitor-watchman"):
        (directory / ".git" / "hooks" / hook).write_text(program.read_text())
        (directory / ".git" / "hooks" / hook).chmod(0o755)
    config(directory, f"[core]\n\tfsmonitor = {program}\n\tpager = {program}\n\teditor = {program}\n")
    look(server, directory, "the secret is shown")
    expect_no(marker, "a hook ran when a viewer looked")


def diff_drivers(server):
    directory, marker = repository(server)
    (directory / ".gitattributes").write_text("* diff=evil\n")
    config(directory, f'[diff "evil"]\n\tcommand = touch {marker}\n\ttextconv = "{command(marker)}"\n')
    config(directory, f"[diff]\n\texternal = touch {marker}\n")
    look(server, directory, "the secret is shown")
    expect_no(marker, "a diff driver ran when a viewer looked")


def diff_of_a_submodule(server):
    directory, marker = repository(server)
    inner, _ = repository(server)
    git(directory, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "sub")
    git(directory, "commit", "-qam", "with a submodule")
    (directory / "sub" / "file.txt").write_text("three\n")
    git(directory / "sub", "commit", "-qam", "moved")
    (directory / "sub" / "file.txt").write_text("four\n")
    config(directory, "[diff]\n\tsubmodule = diff\n")
    with open(directory / ".git" / "modules" / "sub" / "config", "a", encoding="utf-8") as file:
        file.write(f"[diff]\n\texternal = touch {marker}\n")
    look(server, directory, "the secret is shown")
    expect_no(marker, "the configuration of a submodule ran a program when a viewer looked")


def worktree_elsewhere(server):
    directory, _ = repository(server)
    outside = server.root / server.name("outside")
    outside.mkdir()
    (outside / "file.txt").write_text(SECRET)
    git(directory, "config", "core.worktree", str(outside))
    look(server, directory, "core.worktree showed a file outside of the session's directory")


def embedded_bare_repository(server):
    outer, marker = repository(server)
    inner = outer / "docs" / "x"
    inner.mkdir(parents=True)
    git(inner, "init", "-q", "--bare")
    (inner / "file.txt").write_text("changed\n")
    (inner / "config").write_text(
        f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {inner}\n'
        f'[filter ""]\n\tclean = "{command(marker)}"\n[filter "evil"]\n\tclean = "{command(marker)}"\n'
    )
    (inner / ".gitattributes").write_text("* filter=\n")
    (inner / "HEAD").write_text("ref: refs/heads/of-the-inner-one\n")
    viewer = server.person("viewer")[2]
    server.session(outer)
    for cmd, fields in LOOKS:
        # An answer about the outer repository, which this directory is a part of, is fine.
        answer = server.ask(viewer, cmd, session_id="_system", root=str(inner), **fields)
        if "of-the-inner-one" in json.dumps(answer):
            raise Succeeded(f"{cmd} took a repository that was committed inside of another one")
    expect_no(marker, "an embedded repository ran a program")


def linked_files_of_git(server):
    secret = server.root / server.name("secret")
    secret.write_text(SECRET + "\n")
    for name in ("packed-refs", "shallow", "objects/info/alternates", "HEAD", "info/exclude", "index"):
        directory, _ = repository(server)
        path = directory / ".git" / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        os.symlink(secret, path)
        look(server, directory, f"a link in the place of .git/{name} printed a secret")


def smudge_when_a_worktree_is_made(server):
    directory, marker = repository(server)
    (directory / ".gitattributes").write_text("* filter=\n")
    git(directory, "add", ".")
    git(directory, "commit", "-qam", "attributes")
    config(directory, f'[filter ""]\n\tsmudge = "{command(marker)}"\n')
    server.ask(server.token, "session.create", config={"harness": "demo", "cwd": str(directory), "worktree": {}})
    expect_no(marker, "a smudge filter ran when a session's worktree was made")


ATTACKS = (
    ("1.1", "a filter in the repository's configuration", filter_with_a_name),
    ("1.2", "fsmonitor, pager, editor and hooks", fsmonitor_and_hooks),
    ("1.3", "drivers of diff", diff_drivers),
    ("1.4", "a filter with an empty name", filter_without_a_name),
    ("1.5", "diff.external in a submodule's configuration", diff_of_a_submodule),
    ("1.6", "core.worktree outside", worktree_elsewhere),
    ("1.7", "a bare repository inside of a clone", embedded_bare_repository),
    ("1.8", "links in the place of git's own files", linked_files_of_git),
    ("1.9", "a smudge filter when a worktree is made", smudge_when_a_worktree_is_made),
)
