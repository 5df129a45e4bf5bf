"""Nodes of a cluster on one machine: network namespaces with an address and a host name each.

Only root may make them. Read inside the user's process as well: standard library only.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

NEW_NAMES, NEW_MOUNTS, NEW_NETWORK = 0x04000000, 0x00020000, 0x40000000
PRIVATE, RECURSIVE, BIND = 1 << 18, 1 << 14, 1 << 12
HOSTS = "/etc/hosts"
INTERFACE = "eth0"
MARK = "autodist-"
"""How namespaces begin; the number of the process that made them follows."""
ENTER = 'hostname "$0"; mount --bind "$1" /etc/hosts; shift; exec "$@"'


def refusal() -> str | None:
    """Why this machine cannot be divided into nodes, None where it can."""
    if sys.platform != "linux":
        return "network namespaces are a part of Linux"
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    missing = [name for name in ("ip", "nsenter", "unshare", "mount", "hostname") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} (of iproute2 and util-linux) is not installed"
    try:
        with Nodes(1) as nodes:
            done = subprocess.run(nodes.command(0, ["true"]), capture_output=True, text=True, check=False)
    except OSError as error:
        return f"this machine makes no network namespaces: {error}"
    return f"no process may enter a node: {done.stderr.strip()}" if done.returncode else None


class Nodes:
    """Some nodes on a network of their own, ``node0`` and so on. Nothing of the machine's own network is touched."""

    def __init__(self, count: int) -> None:
        self.names = [f"node{number}" for number in range(count)]
        self.addresses = [f"10.77.0.{number + 1}" for number in range(count)]
        _sweep()
        mark = f"{MARK}{os.getpid()}-{secrets.token_hex(3)}"
        self._lan = f"{mark}-lan"
        self.namespaces = [f"{mark}-{name}" for name in self.names]
        self._folder = tempfile.mkdtemp(prefix="autodist-nodes-")
        self.hosts = os.path.join(self._folder, "hosts")
        entries = [f"{address} {name}\n" for address, name in zip(self.addresses, self.names, strict=True)]
        Path(self.hosts).write_text("127.0.0.1 localhost\n" + "".join(entries), encoding="utf-8")
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        _ip("netns", "add", self._lan)
        _ip("-n", self._lan, "link", "add", "lan", "type", "bridge")
        _ip("-n", self._lan, "link", "set", "lan", "up")
        for number, (namespace, address) in enumerate(zip(self.namespaces, self.addresses, strict=True)):
            port = f"port{number}"
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "add", INTERFACE, "type", "veth", "peer", "name", port, "netns", self._lan)
            _ip("-n", self._lan, "link", "set", port, "master", "lan", "up")
            _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _ip("-n", namespace, "link", "set", interface, "up")

    def command(self, node: int, command: Sequence[str]) -> list[str]:
        """A command that runs on a node."""
        inside = ["unshare", "--uts", "--mount", "sh", "-c", ENTER, self.names[node], self.hosts, *command]
        return ["nsenter", f"--net=/run/netns/{self.namespaces[node]}", *inside]

    def kill(self, node: int) -> None:
        """End all that runs on a node, at once, as when it loses its power."""
        found = subprocess.run(["ip", "netns", "pids", self.namespaces[node]], capture_output=True, check=False)
        for pid in map(int, found.stdout.split()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def close(self) -> None:
        """Take all of it away."""
        for node, namespace in enumerate([*self.namespaces, self._lan]):
            if node < len(self.namespaces):
                self.kill(node)
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _sweep() -> None:
    """Take away what is left of processes that were killed."""
    for path in Path("/run/netns").glob(f"{MARK}*"):
        pid = path.name.removeprefix(MARK).partition("-")[0]
        if not os.path.exists(f"/proc/{pid}"):
            subprocess.run(["ip", "netns", "del", path.name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip() or done.returncode}")


def enter(namespace: str, name: str, hosts: str) -> None:
    """Take this process to a node."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}", encoding="utf-8") as file:
        _call(libc.setns(file.fileno(), NEW_NETWORK))
    _call(libc.unshare(NEW_NAMES | NEW_MOUNTS))
    _call(libc.mount(b"none", b"/", None, ctypes.c_ulong(PRIVATE | RECURSIVE), None))
    _call(libc.mount(hosts.encode(), HOSTS.encode(), None, ctypes.c_ulong(BIND), None))
    socket.sethostname(name)


def _call(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
