"""The buffers of a plan on a device: each between two guards, with its data uploaded, restored or poisoned."""

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
"""Makes another number of one that it is combined with (^): as a float about as large; each byte changes but the
highest."""

GUARD = 64 * 1024
"""Bytes of a guard: catches a tile that hangs over the end of a row, and more."""


@dataclass(slots=True)
class Guarded:
    """One buffer on the device: `view` (what the kernel sees) starts at byte `start` of `whole`.

    `guard` is the word that fills what lies around it, `poison` the one that filled it before the last run, None where
    none did. Where the kernel sees an `image`, the buffer holds its pixels: what is written there is pushed into the
    image, and pulled from it to be checked. Guards cannot surround an image; the hardware drops what a kernel writes
    beside one.
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
        """What the kernel is given."""
        return self.view if self.image is None else self.image

    def push(self, session: Session) -> None:
        """Bring the image, if it is one, to what lies in the buffer."""
        if self.image is not None:
            session.copy(self.whole, self.image, self.nbytes, self.start, 0)

    def pull(self, session: Session) -> None:
        """Bring the buffer to what the image holds."""
        if self.image is not None:
            session.copy(self.image, self.whole, self.nbytes, 0, self.start)

    @property
    def restored(self) -> bool:
        """True where it is put back to what it holds before each run."""
        return self.buffer.access == "zeroed" or self.pristine is not None


class Arena:
    """Keeps the buffers of the plans it has seen, so that inputs travel to the device once.

    `inputs` are host arrays of the logical shapes; what is allocated and not in the shape is zero. `first` is the
    place, among the words of each type (words.py), of those that fill guards, and all else before a first run. Where it
    is `marked`, outputs are filled with the one word that shows what a reference leaves unwritten, and no other.
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
        """Return the plan's buffers, created and uploaded where they are not here yet."""
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
        """Fill a buffer with its type's word of this turn, so that what a kernel leaves unwritten shows."""
        marked = self._marked and guarded.buffer.writes
        guarded.poison = POISON if marked else spoilt(guarded.buffer.type)[turn]
        self._session.fill(guarded.whole, guarded.poison, guarded.start, guarded.nbytes)
        guarded.push(self._session)

    def disturb(self, guarded: Guarded, part: int) -> bool:
        """Change, in what a run has left in a buffer, about half of the words: the ones, or with `part` 1 the others.

        So flags stay set beside numbers that are off. Return False where nothing is changed: in images, in outputs of
        which a reference leaves some unwritten, and where the device runs no kernels of ours. Raises BackendError.
        """
        marked = self._marked and guarded.buffer.writes
        if guarded.image is not None or marked or not self._session.traits.checks_on_device:
            return False
        seed = zlib.crc32(guarded.buffer.name.encode())  # so that the words of no two buffers go together
        self._disturb(guarded.view, guarded.nbytes // 4, seed, part, _ANOTHER)
        guarded.poison = None
        return True

    @cached_property
    def _disturb(self) -> Callable[[Memory, int, int, int, int], None]:
        return disturber(self._session)

    def surround(self, guarded: Guarded, turn: int | None = None) -> None:
        """Fill the guards of a buffer with the word of this turn, or else with the other one of the first two.

        They stay as they were where the last word of an input, which its checksum covers, is partly theirs, and around
        what is an image for the kernel, which sees none.
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
        """Put an `inout` or `zeroed` buffer back to what it holds before a run; nothing for the others."""
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
    """Return the data in the buffer's allocation: type cast, zeros where `allocate` exceeds `shape`."""
    dtype, _ = numpy_type(buffer.type)
    data = np.asarray(data, dtype).reshape(buffer.data_shape)
    if buffer.allocate == buffer.shape:
        return data
    room = np.zeros((*buffer.allocate, *data.shape[len(buffer.shape) :]), dtype)
    room[tuple(slice(extent) for extent in buffer.shape)] = data
    return room
