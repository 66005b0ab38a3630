"""Images of one and three dimensions and samplers in whole studies on a device; the gallery's blur is in two."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from autotune.devices import BackendError, Session, open_session
from autotune.errors import DeviceError, StudyError
from autotune.model import Outcome
from autotune.study import Problem, Study
from tests.devices import device_here
from tests.test_gallery import run

pytestmark = pytest.mark.device

SIZES = {"PLANES": 3, "ROWS": 5, "WIDTH": 12}
SHAPES = {1: ["WIDTH"], 3: ["PLANES", "ROWS", "WIDTH"]}
"""Different extents, so that a wrong order of axes shows."""

PLACES = {1: "get_global_id(0)", 3: "(int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0)"}
MIRRORED = {1: "WIDTH - 1 - get_global_id(0)", 3: "at * (int4)(1, 1, -1, 0) + (int4)(0, 0, PLANES - 1, 0)"}
"""Mirrored along the first of NumPy's axes."""


@pytest.fixture(scope="module")
def session() -> Session:
    found = open_session(device_here())
    if not found.info.images:
        pytest.skip(f"{found.info.name} has no images")
    return found


def mirror(dimensions: int, image: dict[str, Any], reads: str = "i", left: int = 0, form: str = "") -> Study:
    """Return a study that mirrors an image, except what is `left` at the end."""
    kind = {"": f"image{dimensions}d_t", "array": "image2d_array_t", "buffer": "image1d_buffer_t"}[form]
    coordinate, image = "int" if dimensions == 1 else "int4", image | ({"form": form} if form else {})
    source = f"""
    #if {int(kind == "image3d_t")}
    #pragma OPENCL EXTENSION cl_khr_3d_image_writes : enable
    #endif
    kernel void mirror(read_only {kind} x, write_only {kind} y, const int PLANES, const int WIDTH) {{
        const {coordinate} at = {PLACES[dimensions]};
        write_image{reads}(y, at, read_image{reads}(x, {MIRRORED[dimensions]}));
    }}"""
    shape = SHAPES[dimensions]
    extents = [*shape[:0:-1], f"{shape[0]} - {left}"]
    blank = {key: value for key, value in image.items() if key != "data"}
    return Study(
        name="mirror", source=source, sizes=SIZES, parameters={"WG": {"values": [4]}},
        arguments={"x": {"image": shape, "access": "in", **image}, "y": {"image": shape, "access": "out", **blank}},
        launch=[{"entry": "mirror", "global": extents, "local": ["WG", 1, 1][:dimensions],
                 "arguments": ["x", "y", "PLANES", "WIDTH"]}],
        reference={"numpy": {"y": "x[::-1]"}},
    )  # fmt: skip


def between(sampler: dict[str, Any]) -> Study:
    """Return a study that reads halfway between two pixels, with image coordinates from 0 to 1."""
    source = """
    kernel void between(read_only image1d_t x, sampler_t smp, global float *y) {
        const int i = get_global_id(0);
        vstore4(read_imagef(x, smp, (i + 1.0f) / get_image_width(x)), i, y);
    }"""
    return Study(
        name="between", source=source, sizes={"N": 16}, parameters={"WG": {"values": [4]}},
        arguments={
            "x": {"image": ["N"], "type": "float", "access": "in"}, "smp": {"sampler": sampler},
            "y": {"type": "float", "shape": ["N", 4], "access": "out"},
        },
        launch=[{"entry": "between", "global": ["N"], "local": ["WG"], "arguments": ["x", "smp", "y"]}],
        reference={"numpy": {"y": "(x + concatenate([x[1:], x[-1:]])) / 2"}},
        tolerance={"absolute": 0.01},  # hardware weighs with 8 bits
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dimensions", "image", "reads", "form"),
    [
        (1, {"type": "int", "channels": "R", "data": {"low": -99, "high": 99}}, "i", ""),
        (3, {"type": "uchar", "normalized": True, "data": {"low": 0, "high": 255}}, "f", ""),
        (3, {"type": "float"}, "f", "array"),
        (1, {"type": "float"}, "f", "buffer"),
    ],
)
def test_images_of_one_and_three_dimensions_and_in_arrays_and_buffers(
    session: Session, dimensions: int, image: dict[str, Any], reads: str, form: str
) -> None:
    (report,) = run(session, mirror(dimensions, image, reads, form=form), {})
    if re.search(" has no (images|arrays of images|image buffers) of ", report.reason):  # but for RGBA none need be
        pytest.skip(report.reason)
    assert report.reason == ""


@pytest.mark.parametrize(
    ("shape", "form"), [((2**20,), ""), ((4, 2**20), ""), ((2, 2, 2**20), ""), ((2, 2, 2**20), "array")]
)
def test_an_image_is_at_most_as_large_as_the_device_says(session: Session, shape: tuple[int, ...], form: str) -> None:
    """NVIDIA's driver makes larger images, which kernels cannot read."""
    with pytest.raises(BackendError, match=r" 1048576( x \d+)* pixels: \d+( x \d+)* at most"):
        session.image(shape, "RGBA", "uchar", False, form)


def test_pixels_that_no_work_item_writes_show(session: Session) -> None:
    (report,) = run(session, mirror(3, {"type": "float"}, "f", left=1), {})
    assert report.outcome is Outcome.WRONG_RESULT
    assert report.reason.startswith("240 of 720 values of y are wrong; first y[2, 0, 0, 0] = -inf")


def test_a_sampler_filters_between_normalized_coordinates(session: Session) -> None:
    assert run(session, between({"filter": "linear", "normalized": True}), {})[0].reason == ""
    for other in ({"filter": "nearest", "normalized": True}, {"filter": "linear", "normalized": False}):
        assert "values of y are wrong" in run(session, between(other), {})[0].reason


def test_a_format_that_the_device_lacks_is_one_line(session: Session) -> None:
    (report,) = run(session, mirror(1, {"type": "float", "channels": "BGRA"}, "f"), {})
    assert report.outcome is Outcome.LAUNCH_ERROR
    assert report.reason == f"{session.info.name} has no images of 1 dimension, order BGRA and type float"


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"type": "float", "channels": "RGB"}, "arguments.x.channels: input should be 'R', .*'RGBA', .*, got 'RGB'"),
        ({"type": "double"}, "arguments.x.type: 'double' is not a type of a channel"),
        ({"type": "float", "normalized": True}, "arguments.x.normalized: a channel of float is not normalized"),
    ],
)
def test_channels_that_there_are_not_are_one_line(session: Session, image: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message) as caught:
        run(session, mirror(1, image), {})
    assert "\n" not in str(caught.value)


def test_a_device_without_images_is_one_line(session: Session) -> None:
    bare = replace(session.info, images=False)
    with pytest.raises(DeviceError, match=r"^study mirror: .* has no images: x, y cannot be made there$"):
        Problem(mirror(1, {"type": "float"}), device=bare)
