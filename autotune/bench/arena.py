"""The buffers of a plan on a device: each between two guards, with its data uploaded, restored or poisoned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.devices import Memory, Session
from autotune.study import Buffer, Image, Plan, numpy_type, round_up

POISON, OTHER_POISON = 0x7FFFA5A5, 0x4A5B6C7D
"""Fill outputs before they are written: a NaN as half, float and double, and an unlikely integer; then a number as each
of these. They differ in every byte: of small values what is left unwritten may well be right on one, and is wrong on
the other."""

POISONS = POISON, OTHER_POISON

BEYOND, OTHER_BEYOND = 0x7FFFC3C3, 0x4B3A5E69
"""Fill the guards of inputs, the other in a second run of a reference: a NaN and a number again. They are no poison, so
that what a kernel copies from beyond the end of an input looks neither unwritten nor right."""

FENCE = 0x3FD1B54A
"""Fills the guards of what a kernel may write. No NaN: arithmetic on the NaNs beyond an input's end gives those NaNs
again, so that a kernel that runs over the ends of both would leave such a guard as it was."""

OTHER_FENCE = 0x3E9D4C2B
"""The same of a reference's second run: what it gives is not to follow what lies there."""

GUARD = 64 * 1024
"""Bytes of a guard: catches a tile that hangs over the end of a row, and more."""


@dataclass(slots=True)
class Guarded:
    """One buffer on the device: `view` (what the kernel sees) starts at byte `start` of `whole`.

    `guard` is the word that fills what lies around it, `poison` the one that filled it before the last run, 0 where
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
    poison: int = 0
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

    `inputs` are host arrays of the logical shapes; what is allocated and not in the shape is zero. `poisons` are the
    words that outputs are filled with: before a first run, and later, to see whether the kernel still writes; `beyond`
    and `fence` fill the guards of what it may only read, and of all else. Local memory is filled with `beyond` too.
    """

    def __init__(
        self,
        session: Session,
        inputs: Mapping[str, NDArray[Any]],
        poisons: tuple[int, int] = POISONS,
        beyond: int = BEYOND,
        fence: int = FENCE,
    ) -> None:
        self._session = session
        self._inputs = inputs
        self._guarded: dict[Buffer, Guarded] = {}
        self.beyond, self._fence = beyond, fence
        self.poisons = poisons

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

    def poison(self, guarded: Guarded, word: int) -> None:
        """Fill a buffer with a word, so that what a kernel leaves unwritten shows."""
        guarded.poison = word
        self._session.fill(guarded.whole, word, guarded.start, guarded.nbytes)
        guarded.push(self._session)

    def restore(self, guarded: Guarded) -> None:
        """Put an `inout` or `zeroed` buffer back to what it holds before a run; nothing for the others."""
        if guarded.buffer.access == "zeroed":
            self._session.fill(guarded.whole, 0, guarded.start, guarded.nbytes)
            guarded.push(self._session)
        elif guarded.pristine is not None:
            start, target = (guarded.start, guarded.whole) if guarded.image is None else (0, guarded.image)
            self._session.copy(guarded.pristine, target, guarded.nbytes, 0, start)

    def _create(self, buffer: Buffer) -> Guarded:
        start = round_up(GUARD, self._session.alignment)
        size = start + round_up(buffer.nbytes, self._session.alignment) + GUARD
        whole = self._session.allocate(size)
        view = self._session.region(whole, start, buffer.nbytes)
        guard = self.beyond if buffer.access == "in" else self._fence
        guarded = Guarded(buffer, whole, view, start, buffer.nbytes, size, guard)
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


def padded(data: NDArray[Any], buffer: Buffer) -> NDArray[Any]:
    """Return the data in the buffer's allocation: type cast, zeros where `allocate` exceeds `shape`."""
    dtype, _ = numpy_type(buffer.type)
    data = np.asarray(data, dtype).reshape(buffer.data_shape)
    if buffer.allocate == buffer.shape:
        return data
    room = np.zeros((*buffer.allocate, *data.shape[len(buffer.shape) :]), dtype)
    room[tuple(slice(extent) for extent in buffer.shape)] = data
    return room
