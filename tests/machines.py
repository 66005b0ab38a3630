"""Machines of a cluster, simulated on this one: a scheduler and workers as processes.

`Machines(folder)` puts each into a network namespace, joined by a bridge that leads nowhere else. Without the right to
make namespaces, all share the loopback interface. Their devices are NumPy's, and every machine has its own locks.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.covered import COVERED_BY
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent

_LEAVE_S = 10.0
"""Seconds that a process may take to end in order."""


def may_have_networks() -> bool:
    """True if this process may make network namespaces and join them."""
    if shutil.which("ip") is None or shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    name = f"autotune-{uuid.uuid4().hex[:6]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    joined = (
        made
        and not subprocess.run(
            ["ip", "-n", name, "link", "add", "bridge", "type", "bridge"], capture_output=True
        ).returncode
    )
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return joined


_GET = """
import http.client, sys
host, *ports = sys.argv[1:]
for port in ports:
    connection = http.client.HTTPConnection(host, int(port), timeout=2)
    try:
        connection.request("GET", "/health")
        connection.getresponse()
        print(port)
    except (OSError, http.client.HTTPException):
        pass
"""


class Machines:
    """Machine 0 has the scheduler and the searches, the others workers. Close it, or use it as a context manager."""

    def __init__(self, folder: Path, *, apart: bool, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.apart = apart
        self._name = f"at{uuid.uuid4().hex[:6]}"
        self._networks: list[str] = []
        self._environment = {**os.environ, **(environment or {})}
        self.processes: list[subprocess.Popen[str]] = []
        self.host = "10.77.0.1" if apart else "127.0.0.1"
        self.port = 8786 if apart else _free_port()
        self.protocol = "tcp"
        self._network(0)

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return f"{self.protocol}://{self.host}:{self.port}"

    def start(self, machine: int, *command: str, **options: Any) -> subprocess.Popen[str]:
        """Start Python with these arguments on a machine."""
        locks = self.folder / f"locks-{machine}"
        locks.mkdir(exist_ok=True)
        environment = self._environment | {
            "AUTOTUNE_LOCKS": str(locks),
            "TMPDIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        process = subprocess.Popen(
            [*self._inside(machine), sys.executable, *command],
            env=environment | options.pop("env", {}),
            cwd=options.pop("cwd", self.folder),
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **options,
        )
        self.processes.append(process)
        return process

    def scheduler(self, *options: str) -> subprocess.Popen[str]:
        """Start the scheduler, and wait until it listens."""
        command = ["-m", "distributed.cli.dask_scheduler", "--host", self.host, "--port", str(self.port)]
        command += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", *options]
        path = self.folder / "scheduler.log"
        with path.open("a") as log:
            known = path.read_text().count("Scheduler at:")
            # Otherwise it would check its loop 50 times a second, without use. No coverage: it runs no line of ours.
            quiet = {"DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s"}
            quiet |= dict.fromkeys(COVERED_BY, "")
            process = self.start(0, *command, stdout=log, stderr=log, env=quiet)
        self.wait_for(lambda: path.read_text().count("Scheduler at:") > known, process)
        return process

    def worker(self, machine: int, device: str = "numpy:0", **options: Any) -> subprocess.Popen[str]:
        """Start a worker on a machine; its output goes to a file."""
        self._network(machine)
        with (self.folder / f"worker-{machine}.log").open("a") as log:
            return self.start(
                machine, "-m", "autotune", "worker", "--on", self.address, "-d", device,
                stdout=log, stderr=log, **options,
            )  # fmt: skip

    def search(self, *words: str, database: Path, **options: Any) -> subprocess.Popen[str]:
        """Start a search on the first machine."""
        command = ["-m", "autotune", "search", *words, "--db", str(database), "--on", self.address]
        return self.start(0, *command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})

    def said(self, machine: int) -> str:
        """The output of the worker of a machine."""
        path = self.folder / f"worker-{machine}.log"
        return path.read_text() if path.exists() else ""

    def listening(self, machine: int) -> str:
        """Where processes of a machine listen, from /proc: one `ADDRESS:PORT ` each."""
        found = ""
        inside = self._inside(machine)
        for table in ("tcp", "tcp6"):
            text = subprocess.run([*inside, "cat", f"/proc/net/{table}"], capture_output=True, text=True).stdout
            for row in text.splitlines()[1:]:
                local, state = row.split()[1], row.split()[3]
                if state == "0A":
                    address, port = local.split(":")
                    raw = b"".join(bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8))
                    family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
                    found += f"{socket.inet_ntop(family, raw)}:{int(port, 16)} "
        return found

    def answering_http(self, machine: int, own: str) -> list[str]:
        """The ports of a machine's own address that answer plain HTTP, without authentication."""
        ports = [where.rpartition(":")[2] for where in self.listening(machine).split() if where.startswith(f"{own}:")]
        command = [*self._inside(machine), sys.executable, "-c", _GET, own, *ports]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    @staticmethod
    def children(process: subprocess.Popen[str]) -> set[str]:
        """The numbers of the processes that a process has started: a worker's Dask worker, which the nanny replaces."""
        tasks = Path(f"/proc/{process.pid}/task")
        return {number for path in tasks.glob("*/children") for number in path.read_text().split()}

    def wait_for(self, condition: Any, process: subprocess.Popen[str] | None = None) -> None:
        """Wait until a condition holds; fail if the process ends before."""

        def holds() -> bool:
            assert process is None or process.poll() is None, f"ended with {process.returncode}"
            return bool(condition())

        wait_until(holds, pause_s=0.05)  # processes take seconds

    def close(self) -> None:
        """End every process and network."""
        for process in reversed(self.processes):  # the scheduler last
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LEAVE_S)
            if process.poll() is None:
                kill(process)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        for name in self._networks:
            _ip("netns", "del", name)

    def _network(self, machine: int) -> None:
        name = f"{self._name}-{machine}"
        if not self.apart or name in self._networks:
            return
        _ip("netns", "add", name)
        self._networks.append(name)
        _ip("-n", name, "link", "set", "lo", "up")
        head = f"{self._name}-0"
        if machine == 0:
            _ip("-n", name, "link", "add", "bridge", "type", "bridge")
            _ip("-n", name, "addr", "add", "10.77.0.1/24", "dev", "bridge")
            _ip("-n", name, "link", "set", "bridge", "up")
            return
        _ip("-n", head, "link", "add", f"to{machine}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", head, "link", "set", f"to{machine}", "master", "bridge", "up")
        _ip("-n", name, "addr", "add", f"10.77.0.{10 + machine}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")

    def _inside(self, machine: int) -> Sequence[str]:
        if not self.apart:
            return []
        named = 'echo "$0" >/proc/sys/kernel/hostname; exec "$@"'
        network = ["ip", "netns", "exec", f"{self._name}-{machine}"]
        return [*network, "unshare", "-u", "sh", "-c", named, f"machine-{machine}"]


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and the group that it leads, like a machine without power."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
