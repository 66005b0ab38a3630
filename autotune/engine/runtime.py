"""What a search holds on the machine while it runs: its device, alone, and a folder for its workers' files.

Both are tied to the process by file locks, which the operating system releases however the process ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from autotune.model import DeviceInfo
from autotune.text import line


class DeviceLock:
    """Lets one search at a time use a device: two at once would spoil each other's times."""

    def __init__(self, device: DeviceInfo) -> None:
        key = lock_key(device)
        base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
        folder = Path(base) / f"autotune-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self._file = (folder / f"device-{re.sub(r'[^A-Za-z0-9.-]', '-', key)}.lock").open("a+")
        if not _try_lock(self._file.fileno()):
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            said = f"autotune: {device.name} is in use by another search (process {holder}); waiting for it to end"
            print(line(said), file=sys.stderr, flush=True)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.truncate(0)
        print(os.getpid(), file=self._file, flush=True)

    def release(self) -> None:
        """Let the next search have the device."""
        self._file.close()


def lock_key(device: DeviceInfo) -> str:
    """Return what names the hardware: all CPU devices are one, whatever driver shows them."""
    if device.kind == "cpu":
        return "cpu"
    return device.uuid or device.pci or f"{device.fingerprint}-{device.index}"


class RunFolder:
    """A temporary folder for inputs, logs and compiler caches; those of searches that were killed are removed."""

    def __init__(self) -> None:
        base = Path(tempfile.gettempdir())
        _sweep(base)
        # Locked under another name first, so that nobody's sweep finds it unlocked.
        made = Path(tempfile.mkdtemp(prefix=".autotune-", dir=base))
        self._lock = (made / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.rename(base / made.name.replace(".autotune-", _PREFIX))

    def environment(self) -> dict[str, str]:
        """Return the variables of a worker: private caches, through which the builders hand over their work.

        A worker that dies in the middle of writing leaves nothing behind for the next search.
        """
        return {
            "POCL_CACHE_DIR": str(self.path / "pocl"),
            "CUDA_CACHE_PATH": str(self.path / "cuda"),
            "CUDA_CACHE_MAXSIZE": str(2**32 - 1),
            "CUDA_CACHE_DISABLE": "0",
            # One queue needs one channel instead of eight, and the context is made and destroyed in a third of the
            # time: 16 at once on an H200 machine took 0.7 s instead of 1.9, and 0.3 s instead of 0.9.
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        }

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


_PREFIX = "autotune-run-"


def _sweep(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            with (folder / "lock").open("r+") as file:
                if _try_lock(file.fileno()):
                    shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # a sweep began that was killed itself, or met a linker that still wrote
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another user's
            continue


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
