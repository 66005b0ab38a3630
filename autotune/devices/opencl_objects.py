"""The parts of an OpenCL session: its memory, its programs, and pyopencl's errors as ours.

pyopencl's own build cache is off: a killed worker would leave a stale lock there, which delays the next worker by a
minute.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from autotune.devices import drivers
from autotune.devices.backend import BackendError, KernelArgument, KernelLimits
from autotune.model import DeviceInfo

os.environ["PYOPENCL_NO_CACHE"] = "1"
import pyopencl as cl

MOST_FILLED = 2**28
"""Bytes filled by one command at most: on an H200 a command for several GB never ended."""


class OpenCLMemory:
    """The memory operations of a session; its methods are documented in `backend.Session`."""

    info: DeviceInfo
    _context: cl.Context
    _queue: cl.CommandQueue
    _samplers: dict[tuple[str, str, bool], cl.Sampler]

    def allocate(self, nbytes: int) -> cl.Buffer:
        with reported():
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, nbytes)

    def region(self, buffer: cl.Buffer, offset: int, nbytes: int) -> cl.Buffer:
        with reported():
            return buffer.get_sub_region(offset, nbytes, 0)

    def fill(self, buffer: cl.Buffer, word: int, offset: int, nbytes: int) -> None:
        pattern, words = np.array([word], np.uint32), nbytes - nbytes % 4
        with reported():
            for begin in range(0, words, MOST_FILLED):
                part = min(MOST_FILLED, words - begin)
                cl.enqueue_fill(self._queue, buffer, pattern, part, offset=offset + begin)
            for place in range(words, nbytes):
                byte = pattern.view(np.uint8)[place % 4 : place % 4 + 1]
                cl.enqueue_fill(self._queue, buffer, byte, 1, offset=offset + place)

    def image(self, shape: Sequence[int], order: str, channel: str, normalized: bool, form: str = "") -> cl.Image:
        if not self.info.images:
            raise BackendError(f"{self.info.name} has no images")
        extents = tuple(reversed(shape))
        made = cl.ImageFormat(getattr(cl.channel_order, order), _channel_type(channel, normalized))
        count = len(extents) - (form == "array")
        kind = getattr(cl.mem_object_type, f"IMAGE{count}D{f'_{form.upper()}' if form else ''}")
        what = {"array": "arrays of images", "buffer": "image buffers"}.get(form, "images")
        dimensions = f"{count} dimension{'s' * (count > 1)}"
        said = f"{what} of {dimensions}, order {order} and type {channel}{' normalized' * normalized}"
        with reported():
            offered = cl.get_supported_image_formats(self._context, cl.mem_flags.READ_WRITE, kind)
            if made not in offered:
                raise BackendError(f"{self.info.name} has no {said}", name="CL_IMAGE_FORMAT_NOT_SUPPORTED")
        pixels = f"{self.info.name} has no {said} and {' x '.join(map(str, extents))} pixels"
        most = self._most_pixels(len(extents), form)
        if any(extent > limit for extent, limit in zip(extents, most, strict=True)):  # NVIDIA's driver does not refuse
            raise BackendError(f"{pixels}: {' x '.join(map(str, most))} at most", name="CL_INVALID_IMAGE_SIZE")
        try:
            behind = self.allocate(math.prod(shape) * made.itemsize) if form == "buffer" else None
            own = {"buffer": behind} if behind is not None else {"is_array": form == "array"}
            return cl.create_image(self._context, cl.mem_flags.READ_WRITE, made, shape=extents, **own)
        except cl.Error as error:
            raise BackendError(f"{pixels}: {error_name(error.code)}", name=error_name(error.code)) from None

    def _most_pixels(self, dimensions: int, form: str) -> tuple[int, ...]:
        """Return the largest width, height and depth, or number of layers, of an image with this number of extents."""
        device = self._context.devices[0]
        with reported():
            if form == "buffer":
                return (device.image_max_buffer_size,)
            if form == "array":
                return *self._most_pixels(2, ""), device.image_max_array_size
            if dimensions == 3:
                return device.image3d_max_width, device.image3d_max_height, device.image3d_max_depth
            return (device.image2d_max_width, device.image2d_max_height)[:dimensions]

    def sampler(self, addressing: str, filtering: str, normalized: bool) -> cl.Sampler:
        if not self.info.images:
            raise BackendError(f"{self.info.name} has no samplers")
        key = addressing, filtering, normalized
        if key not in self._samplers:  # kept, since with some drivers a kernel does not keep its sampler alive
            mode, filter_ = getattr(cl.addressing_mode, addressing.upper()), getattr(cl.filter_mode, filtering.upper())
            with reported():
                self._samplers[key] = cl.Sampler(self._context, normalized, mode, filter_)
        return self._samplers[key]

    def write(self, buffer: cl.Buffer, data: NDArray[Any], offset: int = 0) -> None:
        plain = _plain(np.ascontiguousarray(data))
        with reported():
            if isinstance(buffer, cl.Image):
                cl._cl._enqueue_write_image(self._queue, buffer, *whole(buffer), plain, is_blocking=True)
            else:
                cl.enqueue_copy(self._queue, buffer, plain, dst_offset=offset, is_blocking=True)

    def read(self, buffer: cl.Buffer, data: NDArray[Any], offset: int = 0) -> None:
        with reported():
            if isinstance(buffer, cl.Image):
                cl._cl._enqueue_read_image(self._queue, buffer, *whole(buffer), _plain(data), is_blocking=True)
            else:
                cl.enqueue_copy(self._queue, _plain(data), buffer, src_offset=offset, is_blocking=True)

    def copy(self, source: cl.Buffer, target: cl.Buffer, nbytes: int, source_offset: int, target_offset: int) -> None:
        queue = self._queue
        with reported():
            if isinstance(source, cl.Image):
                cl._cl._enqueue_copy_image_to_buffer(queue, source, target, *whole(source), target_offset)
            elif isinstance(target, cl.Image):
                cl._cl._enqueue_copy_buffer_to_image(queue, source, target, source_offset, *whole(target))
            else:
                cl.enqueue_copy(
                    queue, target, source, byte_count=nbytes, src_offset=source_offset, dst_offset=target_offset
                )


def _channel_type(channel: str, normalized: bool) -> int:
    """Return OpenCL's constant: `uchar` is UNSIGNED_INT8, or UNORM_INT8 if it is normalized."""
    if channel in ("half", "float"):
        return int(getattr(cl.channel_type, {"half": "HALF_FLOAT", "float": "FLOAT"}[channel]))
    bits = {"char": 8, "short": 16, "int": 32}[channel.removeprefix("u")]
    sign = ("UNORM" if channel[0] == "u" else "SNORM") if normalized else "UNSIGNED" if channel[0] == "u" else "SIGNED"
    return int(getattr(cl.channel_type, f"{sign}_INT{bits}"))


@cache
def channel_of(constant: int) -> tuple[str, bool]:
    """Return OpenCL C's type of a channel, and whether it is normalized: the inverse of `_channel_type`."""
    integers = [f"{sign}{bits}" for sign in ("", "u") for bits in ("char", "short", "int")]
    known = [("half", False), ("float", False), *((channel, False) for channel in integers)]
    known += [(channel, True) for channel in integers if "int" not in channel]
    return next((one for one in known if _channel_type(*one) == constant), (f"channel type 0x{constant:x}", False))


def _plain(data: NDArray[Any]) -> NDArray[Any]:
    """Return structs as their bytes, since OpenCL copies bytes; other arrays as they are."""
    return data.reshape(-1).view(np.uint8) if data.dtype.names else data


def whole(image: cl.Image) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return origin and region of all pixels, for the functions that cl.enqueue_copy calls.

    cl.enqueue_copy itself fails for an image of one dimension (pyopencl 2026.1): `invalid dest mem object type`. The
    alternative enqueue_map_image waits, for ever if the queue is held until a batch is complete.
    """
    layers = image.array_size if image.type == cl.mem_object_type.IMAGE2D_ARRAY else image.depth
    return (0, 0, 0), (image.width, max(1, image.height), max(1, layers))


_CONST = cl.kernel_arg_type_qualifier.CONST
_ADDRESSES = {
    getattr(cl.kernel_arg_address_qualifier, name.upper()): name for name in ("global", "local", "constant", "private")
}
_BESIDE_TYPE = re.compile(r"\b(__)?(global|constant|local|private|generic|const|volatile|restrict)\b|[(*)]")
_ACCESSES = {
    getattr(cl.kernel_arg_access_qualifier, name.upper()): name for name in ("read_only", "write_only", "read_write")
}


class OpenCLProgram:
    """A built program: its kernels, log and binary, which is PTX on NVIDIA."""

    def __init__(self, program: cl.Program, device: cl.Device, binary_suffix: str = "bin") -> None:
        self._program = program
        self._device = device
        self.binary_suffix = binary_suffix
        self.log = ""
        with suppress(cl.Error):
            ask: Any = program
            self.log = str(ask.get_build_info(device, cl.program_build_info.LOG)).strip("\0 \n")
        found = {name: [int(number) for number in pattern.findall(self.log)] for name, pattern in drivers.FACTS.items()}
        self.resources = {name: max(numbers) for name, numbers in found.items() if numbers}

    @property
    def entries(self) -> list[str]:
        """The names of its kernels."""
        with reported():
            if not self._program.get_info(cl.program_info.NUM_KERNELS):
                return []  # then NVIDIA's driver returns no names, not even an empty text, and pyopencl crashes
            return str(self._program.get_info(cl.program_info.KERNEL_NAMES)).strip("\0").split(";")

    @property
    def binary(self) -> bytes:
        """The device's binary. PoCL compiles again to return it."""
        with reported():
            return cast("list[bytes]", self._program.get_info(cl.program_info.BINARIES))[0]

    def kernel(self, entry: str) -> cl.Kernel:
        """Return a new kernel object. Raises BackendError if the program has no such entry."""
        try:
            with reported():
                return cl.Kernel(self._program, entry)
        except BackendError as error:
            if error.name != "CL_INVALID_KERNEL_NAME":
                raise
            raise BackendError(f"the program has {', '.join(self.entries) or 'none'}", name=error.name) from None
        except OSError as error:  # of pyopencl, which caches generated code if a program lets it
            what = f"pyopencl cannot write its cache: {error}; set XDG_CACHE_HOME to a folder that takes files"
            raise BackendError(what) from None

    def limits(self, kernel: cl.Kernel) -> KernelLimits:
        """Return the limits of one of its kernels."""
        ask = cl.kernel_work_group_info
        with reported():
            return KernelLimits(
                math.prod(kernel.get_work_group_info(ask.COMPILE_WORK_GROUP_SIZE, self._device)),
                kernel.get_work_group_info(ask.WORK_GROUP_SIZE, self._device),
                kernel.get_work_group_info(ask.LOCAL_MEM_SIZE, self._device),
                kernel.get_work_group_info(ask.PRIVATE_MEM_SIZE, self._device),
            )


def signature(kernel: cl.Kernel) -> list[KernelArgument]:
    """Return the arguments of a kernel. Raises BackendError if the driver does not describe them."""
    ask, found = cl.kernel_arg_info, []
    for position in range(kernel.num_args):
        address = kernel.get_arg_info(position, ask.ADDRESS_QUALIFIER)
        access = kernel.get_arg_info(position, ask.ACCESS_QUALIFIER)
        qualifiers: Any = kernel.get_arg_info(position, ask.TYPE_QUALIFIER)
        kind = _of_elements(str(kernel.get_arg_info(position, ask.TYPE_NAME)).strip("\0"))
        name = str(kernel.get_arg_info(position, ask.NAME)).strip("\0")
        if not kind or not name:
            raise BackendError("the driver reports nothing about a kernel's arguments")
        found.append(
            KernelArgument(name, kind, _ADDRESSES[address], _ACCESSES.get(access, ""), bool(qualifiers & _CONST))
        )
    return found


def _of_elements(kind: str) -> str:
    """Return the type of a pointer to arrays as a pointer to their elements.

    `const __global unsigned int[4]*` gives `uint*`.
    """
    if "[" not in kind:
        return kind
    words = _BESIDE_TYPE.sub("", kind[: kind.index("[")]).replace("unsigned ", "u").split()
    return f"{' '.join(words)}*"


def error_name(code: int) -> str:
    """Return the name of an OpenCL error: -36 is CL_INVALID_COMMAND_QUEUE."""
    if code == -9999:  # undocumented: NVIDIA's driver returns it for an illegal read or write
        return "NVIDIA's illegal memory access"
    names = {value: name for name, value in vars(cl.status_code).items() if isinstance(value, int)}
    return f"CL_{names[code]}" if code in names else "unknown error"


def failed(call: str, code: int) -> str:
    """Return the message of a failed call: `clSetKernelArg failed: CL_INVALID_ARG_SIZE (-51)`."""
    return f"{call} failed: {error_name(code)} ({code})"


@contextmanager
def reported() -> Iterator[None]:
    """Raise BackendError if OpenCL refuses a call in the block."""
    try:
        yield
    except cl.Error as error:
        raise refused(error) from None


def refused(error: cl.Error) -> BackendError:
    """Return OpenCL's error as a BackendError."""
    return BackendError(failed(error.routine or "OpenCL", error.code), name=error_name(error.code))
