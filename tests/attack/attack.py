#!/usr/bin/env python3
"""Attacks on a running server. Usage: attack.py PATH-OF-QD [NUMBER...]

Each attack plays against the real binary, on loopback. It fails the run when it succeeds, unless defences.py has it in
its list. Attacks of one file share a server; the one with many sockets, and those on logins, have one of their own.
"""

import contextlib
import sys
import time
import traceback

# The tree stays as it is.
sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import machine
import network
import repositories
from defences import NOT_DEFENDED
from server import Server, Succeeded

# They leave a server behind that others could not use, or count what it has seen.
ALONE = {"0.5", "2.1", "4.1", "4.2", "10.2"}


def play(server, attack):
    """What came of it: a word, and what there is to say."""
    try:
        attack(server)
    except Succeeded as success:
        return "SUCCEEDED", str(success)
    # Whatever else goes wrong is a defect of the attack, or a server that has died of it.
    except Exception:  # pylint: disable=broad-except
        return "BROKEN", traceback.format_exc(limit=3)
    if not server.is_alive():
        return "SUCCEEDED", "the server has died of it"
    return "refused", ""


def verdict(number, outcome):
    """What it means, and whether the run fails for it."""
    if number not in NOT_DEFENDED:
        return outcome, outcome != "refused"
    if outcome == "BROKEN":
        return "NOT DEFENDED, and it could not be played", False
    if outcome == "refused":
        return "refused, though defences.py lists it: take it out", False
    return "NOT DEFENDED", False


def main(arguments):
    if not arguments:
        print(__doc__)
        return 2
    binary, wanted = arguments[0], set(arguments[1:])
    known = [attack for module in (network, repositories, machine) for attack in module.ATTACKS]
    unknown = (set(NOT_DEFENDED) | wanted) - {number for number, _, _ in known}
    if unknown:
        print(f"attack: there is no attack {', '.join(sorted(unknown))}; see ATTACKS in tests/attack/*.py")
        return 2
    failures, open_holes = [], []
    with contextlib.ExitStack() as stack:
        shared = None
        for number, title, attack in sorted(known, key=lambda it: [int(part) for part in it[0].split(".")]):
            if wanted and number not in wanted:
                continue
            start = time.monotonic()
            if number in ALONE:
                with Server(binary) as server:
                    outcome, said = play(server, attack)
            else:
                shared = shared if shared and shared.is_alive() else stack.enter_context(Server(binary))
                outcome, said = play(shared, attack)
            word, is_failure = verdict(number, outcome)
            print(f"{number:>5}  {title:<58} {word}  ({time.monotonic() - start:.1f} s)", flush=True)
            if is_failure or (outcome != "refused" and wanted):
                print("       " + said.replace("\n", "\n       "))
            if is_failure:
                failures.append(number)
            elif number in NOT_DEFENDED:
                open_holes.append(number)
    if open_holes:
        print(f"not defended yet, or not known to be: {', '.join(open_holes)} (tests/attack/defences.py says why)")
    if failures:
        print(f"attacks that must not succeed: {', '.join(failures)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
