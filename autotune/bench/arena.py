"""The buffers of a plan on a device: each lies between two guards; its data is uploaded, restored or poisoned."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.kernels import disturber
from autotune.bench.words import FENCE, POISON, beyond, spoilt
from autotune.devices import Memory, Session
from autotune.study import Buffer, Image, Plan, numpy_type, round_up

_ANOTHER = 0x00101010
"""XORed with a word, it gives another number: as a float, one of about the same size. Each byte but the highest
changes."""

GUARD = 64 * 1024
"""Bytes of a guard: enough to catch a tile that reaches beyond the end of a row, and more."""


@dataclass(slots=True)
class Guarded:
    """One buffer on the device: `view` (what the kernel sees) starts at byte `start` of `whole`.

    `guard` is the word that fills the guards around it. `poison` is the word that filled it before the last run, or
    None if it was not poisoned. Where the kernel sees an `image`, the buffer holds its pixels: they are pushed into the
    image after a write, and pulled from it before a check. An image has no guards; the hardware drops what a kernel
    writes outside it.
    """

    buffer: Buffer
    whole: Memory
    view: Memory
    start: int
    nbytes: int
    size: int
    guard: int
    poison: int | None = None
    pristine: Memory | None = None
    checksum: int | None = None
    image: Memory | None = None

    @property
    def argument(self) -> Memory:
        """The memory object that is passed to the kernel."""
        return self.view if self.image is None else self.image

    def push(self, session: Session) -> None:
        """Copy the buffer into the image, if there is one."""
        if self.image is not None:
            session.copy(self.whole, self.image, self.nbytes, self.start, 0)

    def pull(self, session: Session) -> None:
        """Copy the image, if there is one, into the buffer."""
        if self.image is not None:
            session.copy(self.image, self.whole, self.nbytes, 0, self.start)

    @property
    def restored(self) -> bool:
        """Whether its contents are restored before each run."""
        return self.buffer.access == "zeroed" or self.pristine is not None


class Arena:
    """Keeps the buffers of the plans it has seen, so that inputs are uploaded to the device once.

    `inputs` are host arrays of the logical shapes; what is allocated outside the shape is zero. Each type has three
    words (words.py): the one at index `first` fills the guards, and all other memory before a first run. If the arena
    is `marked`, outputs are always filled with `POISON`, which shows what a reference leaves unwritten.
    """

    def __init__(
        self, session: Session, inputs: Mapping[str, NDArray[Any]], *, first: int = 0, marked: bool = False
    ) -> None:
        self._session = session
        self._inputs = inputs
        self._guarded: dict[Buffer, Guarded] = {}
        self.first = first
        self._marked = marked

    def prepare(self, plan: Plan) -> list[Guarded]:
        """Return the plan's buffers. Those that do not exist yet are created and uploaded."""
        wanted = plan.buffers
        missing = sum(buffer.nbytes for buffer in wanted if buffer not in self._guarded)
        held = sum(guarded.size for guarded in self._guarded.values())
        if held + missing > self._session.info.memory // 4:
            self._guarded = {key: value for key, value in self._guarded.items() if key in wanted}
        for buffer in wanted:
            if buffer not in self._guarded:
                self._guarded[buffer] = self._create(buffer)
        return [self._guarded[buffer] for buffer in wanted]

    def clear(self) -> None:
        """Forget every buffer: a faulty kernel may have written to any of them."""
        self._guarded.clear()

    def poison(self, guarded: Guarded, turn: int) -> None:
        """Fill a buffer with word number `turn` of its type, so that what a kernel leaves unwritten shows."""
        marked = self._marked and guarded.buffer.writes
        guarded.poison = POISON if marked else spoilt(guarded.buffer.type)[turn]
        self._session.fill(guarded.whole, guarded.poison, guarded.start, guarded.nbytes)
        guarded.push(self._session)

    def disturb(self, guarded: Guarded, part: int) -> bool:
        """Change about half of the words that a run has left in a buffer: one half with `part` 0, the other with 1.

        So some flags stay set beside numbers that have changed. Return False where nothing is changed: for images, for
        outputs if the arena is marked, and where the device does not run our kernels. Raises BackendError.
        """
        marked = self._marked and guarded.buffer.writes
        if guarded.image is not None or marked or not self._session.traits.checks_on_device:
            return False
        seed = zlib.crc32(guarded.buffer.name.encode())  # other words in each buffer
        self._disturb(guarded.view, guarded.nbytes // 4, seed, part, _ANOTHER)
        guarded.poison = None
        return True

    @cached_property
    def _disturb(self) -> Callable[[Memory, int, int, int, int], None]:
        return disturber(self._session)

    def surround(self, guarded: Guarded, turn: int | None = None) -> None:
        """Fill the guards of a buffer with word number `turn`; without a turn, with the other one of the first two.

        The guards around the pixels of an image, which no kernel sees, stay as they were. So do the guards of a buffer
        whose last word is partly guard, since an input's checksum covers that word.
        """
        if guarded.nbytes % 4 == 0 and guarded.image is None:
            if turn is None:
                turn = int(guarded.guard == _guard(guarded.buffer, 0))
            guarded.guard = _guard(guarded.buffer, turn)
            stop = guarded.start + guarded.nbytes
            self._session.fill(guarded.whole, guarded.guard, 0, guarded.start)
            self._session.fill(guarded.whole, guarded.guard, stop, guarded.size - stop)

    def zero(self, guarded: Guarded) -> None:
        """Fill a buffer with zeros."""
        self._session.fill(guarded.whole, 0, guarded.start, guarded.nbytes)
        guarded.push(self._session)

    def restore(self, guarded: Guarded) -> None:
        """Restore what an `inout` or `zeroed` buffer holds before a run; do nothing for other buffers."""
        if guarded.buffer.access == "zeroed":
            self.zero(guarded)
        elif guarded.pristine is not None:
            start, target = (guarded.start, guarded.whole) if guarded.image is None else (0, guarded.image)
            self._session.copy(guarded.pristine, target, guarded.nbytes, 0, start)

    def _create(self, buffer: Buffer) -> Guarded:
        start = round_up(GUARD, self._session.alignment)
        size = start + round_up(buffer.nbytes, self._session.alignment) + GUARD
        whole = self._session.allocate(size)
        view = self._session.region(whole, start, buffer.nbytes)
        guarded = Guarded(buffer, whole, view, start, buffer.nbytes, size, _guard(buffer, self.first))
        self._session.fill(whole, guarded.guard, 0, size)
        name = buffer.filled or buffer.name
        if buffer.reads and name in self._inputs:
            data = padded(self._inputs[name], buffer)
            self._session.write(whole, data, start)
            if buffer.access == "inout":
                guarded.pristine = self._session.allocate(buffer.nbytes)
                self._session.write(guarded.pristine, data)
        if isinstance(buffer, Image):
            guarded.image = buffer.create(self._session)
            guarded.push(self._session)
        return guarded


def _guard(buffer: Buffer, turn: int) -> int:
    return (beyond(buffer.type) if buffer.access == "in" else FENCE)[turn]


def padded(data: NDArray[Any], buffer: Buffer) -> NDArray[Any]:
    """Return the data as it fills the buffer's allocation: type cast, zeros where `allocate` exceeds `shape`."""
    dtype, _ = numpy_type(buffer.type)
    data = np.asarray(data, dtype).reshape(buffer.data_shape)
    if buffer.allocate == buffer.shape:
        return data
    room = np.zeros((*buffer.allocate, *data.shape[len(buffer.shape) :]), dtype)
    room[tuple(slice(extent) for extent in buffer.shape)] = data
    return room
