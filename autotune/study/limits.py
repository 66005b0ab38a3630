"""A device's limits for a study: whether it can run the study at all, and which configurations fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.errors import DeviceError
from autotune.expression import Expression
from autotune.space import Constraint
from autotune.study.arguments import BRACES, Argument, Buffer, Image, Local, Sampler, filled
from autotune.study.plan import Launch, Loop
from autotune.study.types import numpy_type
from autotune.text import did_you_mean

if TYPE_CHECKING:
    from autotune.study.problem import Problem

KHRONOS = (
    "cl_khr_fp16", "cl_khr_fp64", "cl_khr_global_int32_base_atomics", "cl_khr_global_int32_extended_atomics",
    "cl_khr_local_int32_base_atomics", "cl_khr_local_int32_extended_atomics", "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics", "cl_khr_byte_addressable_store", "cl_khr_3d_image_writes", "cl_khr_depth_images",
    "cl_khr_image2d_from_buffer", "cl_khr_mipmap_image", "cl_khr_mipmap_image_writes", "cl_khr_gl_msaa_sharing",
    "cl_khr_select_fprounding_mode", "cl_khr_device_enqueue_local_arg_types", "cl_khr_integer_dot_product",
    "cl_khr_expect_assume", "cl_khr_extended_async_copies", "cl_khr_extended_bit_ops",
    "cl_khr_async_work_group_copy_fence", "cl_khr_work_group_uniform_arithmetic", "cl_khr_kernel_clock",
    "cl_khr_subgroups", "cl_khr_subgroup_ballot", "cl_khr_subgroup_clustered_reduce",
    "cl_khr_subgroup_extended_types", "cl_khr_subgroup_named_barrier", "cl_khr_subgroup_non_uniform_arithmetic",
    "cl_khr_subgroup_non_uniform_vote", "cl_khr_subgroup_rotate", "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
)  # fmt: skip
"""Extensions of Khronos's registry that a kernel may need: correct names, even if a device lacks them."""


WHOLE = "is whole work-groups"
"""Ends the reason of a limit that a launch with a rounded-up global size fulfils."""


def limits_of(problem: Problem, number: str, launch: Launch, above: Sequence[Loop]) -> list[Constraint]:
    """Return the limits of one launch as constraints: work-group size, divisibility, local and constant memory."""
    limits = []
    which, steps = f"launch {number} ({launch.entry})", problem.study.steps
    if launch.local_size is not None:
        product = " * ".join(f"({extent.text})" for extent in launch.local_size)
        limits.append((f"{product} <= max_work_group_size", "the work-group fits the device"))
        for axis, (whole, part) in enumerate(zip(launch.global_size, launch.local_size, strict=True)):
            limit = problem.device.max_work_item_sizes[axis]
            limits.append((f"({part.text}) >= 1 and ({part.text}) <= {limit}", f"work-group extent {axis} fits"))
            if not whole.names & steps:  # a size that depends on a loop's step fails only at the launch
                limits.append((f"({whole.text}) % ({part.text}) == 0", f"global size {axis} {WHOLE}"))
    arguments = [problem.study.arguments[name] for name in launch.arguments if name in problem.study.arguments]
    local = [argument for argument in arguments if isinstance(argument, Local)]
    needed = [f"({argument.count.text}) * {_element_bytes(problem, argument)}" for argument in local]
    if needed:
        limits.append((f"{' + '.join(needed)} <= local_memory", "local memory fits the device"))
    constant = [argument for argument in arguments if isinstance(argument, Buffer) and argument.constant]
    needed = [
        " * ".join(f"({extent.text})" for extent in buffer.allocate)
        + f" * {_element_bytes(problem, buffer)}"
        + ("" if isinstance(buffer.constant, bool) else f" * (1 if ({buffer.constant.text}) else 0)")
        for buffer in constant
    ]
    if needed:
        limits.append((f"{' + '.join(needed)} <= constant_memory", "constant memory fits the device"))
    whens = [when for when in (launch.when, *(loop.when for loop in above)) if not when.names & steps]
    applies = " and ".join(f"({when.text})" for when in dict.fromkeys(whens)) or "1"
    return [
        Constraint(
            Expression.parse(text if applies == "(1)" else f"(not ({applies})) or ({text})", where=f"launch.{number}"),
            f"{which}: {reason}",
        )
        for text, reason in limits
    ]


def _element_bytes(problem: Problem, argument: Argument) -> int:
    """Return the bytes of one element; the largest if the type depends on a parameter."""
    tuned = [name for name in BRACES.findall(argument.type) if name in problem.values]
    types = [filled(argument.type, problem.constants | {name: v}) for name in tuned for v in problem.values[name]]
    sizes = [numpy_type(text) for text in types or [filled(argument.type, problem.constants)]]
    return max(dtype.itemsize * width for dtype, width in sizes)


def require_device(problem: Problem) -> None:
    requires = problem.study.requires
    missing = [name for name in requires.extensions if name not in problem.device.extensions]
    if missing:
        meant = did_you_mean(missing[0], {*KHRONOS, *problem.device.extensions}) if missing[0] not in KHRONOS else ""
        what = f"{problem.device.name} lacks {', '.join(missing)}{meant}"
        hint = "choose another device with --device (autotune devices lists them)"
        raise DeviceError(what, where=f"study {problem.study.name}", hint=hint)
    images = [name for name, argument in problem.study.arguments.items() if isinstance(argument, Image | Sampler)]
    if images and not problem.device.images:
        what = f"{problem.device.name} has no images: {', '.join(images)} cannot be made there"
        raise DeviceError(what, where=f"study {problem.study.name}")
    _require_precision(problem)
    if requires.vendor and problem.on_device and requires.vendor.lower() != problem.device.vendor_name:
        raise DeviceError(
            f"needs a device of {requires.vendor}, and {problem.device.name} is of {problem.device.vendor_name}",
            where=f"study {problem.study.name}",
            hint="choose one with --device (autotune devices lists them)",
        )


def _require_precision(problem: Problem) -> None:
    """Raise DeviceError if the device cannot calculate in a type of the study's arguments or choices."""
    if not problem.on_device:
        return
    names = {**problem.choices, **{name: values[0] for name, values in problem.values.items()}}
    # The scalar type of a vector (`half` of `half4`); other types as they are.
    types = [(filled(each.type, names).rstrip("0123456789"), each) for each in problem.study.arguments.values()]
    named, stored = {str(value) for value in problem.choices.values()}, {kind for kind, _ in types}
    by_value = {kind for kind, argument in types if not isinstance(argument, Buffer)}
    uses = {"cl_khr_fp64": named | stored, "cl_khr_fp16": named | by_value}
    for extension, kind in (("cl_khr_fp64", "double"), ("cl_khr_fp16", "half")):
        storage = kind == "half" and "vload_half" in problem.study.source
        if kind in uses[extension] and extension not in problem.device.extensions and not storage:
            what = f"{problem.device.name} lacks {extension}, which {kind} needs"
            raise DeviceError(what, where=f"study {problem.study.name}", hint="choose another type or --device")
