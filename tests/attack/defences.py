"""The one list of attacks that nothing stops yet, with the reason.

Take an attack out of it in the commit that mends what it uses: from then on CI fails when it succeeds. An attack that
is in the list is played and shown as NOT DEFENDED, never as passed; if it does not succeed any more, the output says so.
"""

NOT_DEFENDED = {
    "1.4": "item 1: the pattern for names of filters misses the empty one",
    "1.5": "item 1: a submodule's own configuration is not read for drivers",
    "1.6": "item 1: git follows core.worktree out of the session's directory",
    "1.7": "item 1: git takes a bare repository wherever it finds one",
    "1.8": "item 1: git follows links in the place of its own files, and its complaints show what is there",
    "1.9": "item 1: making a worktree runs filters with an empty name",
    "2.1": "item 2: /proc may be the directory of a session",
    "3.2": "item 3: the runner is told a role, and not the scopes of the token",
    "4.2": "item 4: writing has no deadline, and a stranger may take every place",
    "5.2": "item 5: a program inside a session may name another session",
    "5.3": "item 5: a program inside a session may name another session",
    "5.4": "item 5: a session with an open gate asks nobody about calls of its own program",
    "5.5": "item 5: the check for who is inside fails open for a process that has died",
    "6.1": "item 6: what is allowed for the session is allowed to everybody",
    "6.2": "item 6: what is allowed for the session is not asked about again, even where the caller wants it",
    "7.1": "item 7: confirming a host does not show whose token it has",
    "8.1": "item 8: the cookie is the only secret of a login in a browser",
    "9.2": "item 9: host names are not resolved before they are checked",
    "10.1": "item 10: names of runners are told apart before the key is checked",
    "10.2": "item 10: failures of an address count for everybody behind it",
    "11.1": "item 11: the audit log has service calls and changes of accounts only",
}
