"""A hub and a runner in two network namespaces, joined by a wire that loses and delays packets.

Run as root by `cargo xtask network`: `lossy_link.py QD [--loss PERCENT] [--delay MS]`. The wire is two TUN devices and
this process between them, because not every kernel has netem. Prints what it measured; fails when a promise is broken.
"""

import argparse
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x0001 | 0x1000
CLONE_NEWNET = 0x40000000
HUB_ADDRESS, RUNNER_ADDRESS, PORT = "10.77.0.1", "10.77.0.2", 7433
NOTICED_MAX_S = 30
PROMPTS = 10


def shell(command):
    subprocess.run(command, shell=True, check=True)


class Namespace:
    """A network of its own with one interface, whose other end is a file descriptor here."""

    def __init__(self, name, address):
        self.name = name
        shell(f"ip netns add {name}")
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{name}", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(there, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        try:
            self.tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(self.tun, TUNSETIFF, struct.pack("16sH", b"wire0", IFF_TUN_NO_PI))
            shell(f"ip addr add {address}/24 dev wire0; ip link set wire0 up; ip link set lo up")
        finally:
            libc.setns(home, CLONE_NEWNET)
            os.close(home)
            os.close(there)

    def command(self, words):
        return ["ip", "netns", "exec", self.name, *words]

    def remove(self):
        os.close(self.tun)
        shell(f"ip netns del {self.name}")


class Wire(threading.Thread):
    """Carries packets both ways, late, and not all of them."""

    def __init__(self, left, right, loss, delay_s):
        super().__init__(daemon=True)
        self.other = {left.tun: right.tun, right.tun: left.tun}
        self.loss, self.delay_s = loss, delay_s
        self.is_cut = False
        self.carried = self.lost = 0
        self.late = []

    def run(self):
        number = 0
        while True:
            now = time.monotonic()
            while self.late and self.late[0][0] <= now:
                _, _, target, packet = heapq.heappop(self.late)
                try:
                    os.write(target, packet)
                except OSError:
                    pass  # A full queue loses packets, as a wire does.
            wait = max(0.0, self.late[0][0] - now) if self.late else 0.05
            for source in select.select(list(self.other), [], [], min(wait, 0.05))[0]:
                try:
                    packet = os.read(source, 65536)
                except OSError:
                    continue
                if self.is_cut or random.random() < self.loss:
                    self.lost += 1
                    continue
                self.carried += 1
                number += 1
                heapq.heappush(self.late, (time.monotonic() + self.delay_s, number, self.other[source], packet))


class Machine:
    """One end: a namespace, a home, and the `qd` that runs there."""

    def __init__(self, qd, namespace, directory):
        self.qd, self.namespace = qd, namespace
        self.home = os.path.join(directory, namespace.name)
        os.makedirs(os.path.join(self.home, "run"))
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.home,
            "QD_DATA_DIR": os.path.join(self.home, "data"),
            "XDG_RUNTIME_DIR": os.path.join(self.home, "run"),
        }

    def run(self, *words, timeout=120):
        done = subprocess.run(
            self.namespace.command([self.qd, *words]), env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout)
        if done.returncode != 0:
            raise RuntimeError(f"qd {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def serve(self, *words):
        child = subprocess.Popen(
            self.namespace.command([self.qd, *words]), env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True)
        return child, json.loads(child.stdout.readline())


def until(what, limit_s, condition):
    """Seconds until the condition holds."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > limit_s:
            raise RuntimeError(f"not within {limit_s} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - start


def status_at_hub(hub):
    runners = json.loads(hub.run("runner", "list", "--json"))
    runners = runners.get("runners", runners) if isinstance(runners, dict) else runners
    return next(runner["status"] for runner in runners if runner["runner_id"] == "far")


def is_connected(runner):
    link = json.loads(runner.run("runner", "status", "--json"))["hub"]["link"]
    return link is not None and link.get("connected_since") is not None


def prompt(hub):
    start = time.monotonic()
    hub.run("run", "--runner", "far", "--harness", "demo", "--wait", "60", "/text")
    return time.monotonic() - start


def check(hub, runner, wire):
    until("the runner is online", 60, lambda: status_at_hub(hub) == "online")
    times = sorted(prompt(hub) for _ in range(PROMPTS))
    print(f"{PROMPTS} sessions created, prompted and answered: median {times[len(times) // 2]:.2f} s, "
          f"slowest {times[-1]:.2f} s")
    wire.is_cut = True
    start = time.monotonic()
    at_hub = until("the hub notices the cut", NOTICED_MAX_S, lambda: status_at_hub(hub) != "online")
    left = NOTICED_MAX_S - (time.monotonic() - start)
    until("the runner notices the cut", left, lambda: not is_connected(runner))
    at_runner = time.monotonic() - start
    print(f"cut cable noticed: hub after {at_hub:.1f} s, runner after at most {at_runner:.1f} s")
    wire.is_cut = False
    back = until("the runner is back", 60, lambda: status_at_hub(hub) == "online")
    print(f"mended: online again after {back:.1f} s; a prompt takes {prompt(hub):.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("qd")
    parser.add_argument("--loss", type=float, default=5.0, help="packets lost each way, in percent")
    parser.add_argument("--delay", type=float, default=200.0, help="delay each way, in milliseconds")
    arguments = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="qd-network-")
    namespaces, children = [], []
    try:
        for end, address in [("hub", HUB_ADDRESS), ("far", RUNNER_ADDRESS)]:
            namespaces.append(Namespace(f"qd-{end}-{os.getpid()}", address))
        hub, runner = (Machine(os.path.abspath(arguments.qd), space, directory) for space in namespaces)
        wire = Wire(*namespaces, arguments.loss / 100, arguments.delay / 1000)
        wire.start()
        children.append(hub.serve("up", "--ready-json", "--listen", f"{HUB_ADDRESS}:{PORT}")[0])
        invite = json.loads(hub.run("runner", "invite", "--json"))
        runner.run("runner", "join", f"https://{HUB_ADDRESS}:{PORT}", "--code", invite["code"], "--name", "far",
                   "--no-start")
        children.append(runner.serve("runner", "start", "--ready-json")[0])
        print(f"a runner at {RUNNER_ADDRESS}, {arguments.loss:g} % loss and {arguments.delay:g} ms each way, TLS")
        check(hub, runner, wire)
        print(f"packets: {wire.carried} carried, {wire.lost} lost")
    finally:
        for child in reversed(children):
            child.terminate()
        for child in children:
            child.wait(15)
        for namespace in namespaces:
            namespace.remove()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    try:
        main()
    except RuntimeError as error:
        sys.exit(f"BROKEN: {error}")
