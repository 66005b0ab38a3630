"""The compiler's description of a kernel's arguments, compared with what a plan gives."""

from __future__ import annotations

from dataclasses import replace

import pyopencl as cl
import pytest

from autotune.bench.report import Fault
from autotune.bench.signature import check_signatures
from autotune.devices import KernelArgument, Session
from autotune.study import Buffer, Image, Launch, Local, Plan, Sampler, Scalar, Tolerance

pytestmark = pytest.mark.device

SOURCE = """
typedef struct { float3 place; int tag; } Point;
typedef float real;
kernel void f(const int n, const real a, const global float *x, global float4 *y, local int *l, global Point *p,
              read_only image2d_t i, sampler_t s, Point one) {}
"""
POINT = "struct Point { float3 place; int tag; }"
ARGUMENTS = {
    "n": Scalar("n", "int", 1),
    "a": Scalar("a", "float", 1),
    "x": Buffer("x", "float", (4,), (4,)),
    "y": Buffer("y", "float", (4,), (4,), "out"),
    "l": Local("l", "int", 4),
    "p": Buffer("p", POINT, (4,), (4,)),
    "i": Image("i", "uchar4", (2, 2), (2, 2)),
    "s": Sampler("s", "sampler_t", "clamp", "nearest", False),
    "one": Scalar("one", POINT, 0),
}


def plan(**changes: object) -> Plan:
    arguments = {**ARGUMENTS, **{name: replace(ARGUMENTS[name], **each) for name, each in changes.items()}}  # type: ignore[arg-type,misc]
    return Plan(SOURCE, (), (Launch("f", (1,), (1,), tuple(arguments)),), arguments, {"y": Tolerance()})


def test_what_fits_is_let_pass(session: Session) -> None:
    assert check_signatures(session, plan()) == []
    assert check_signatures(session, plan(n={"type": "uint"}, a={"type": "double"})) == []  # a typedef may be anything


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("n", ARGUMENTS["a"], "argument 1, n, is `int` in the kernel and a scalar of float in the study: write type"),
        ("n", Scalar("n", "long", 1), 'a scalar of long in the study: write type = "int" in [arguments.n]'),
        ("n", Scalar("n", "int2", 1), "is `int` in the kernel and a scalar of int2"),
        ("n", ARGUMENTS["x"], "is `int` in the kernel and a buffer of float"),
        ("x", ARGUMENTS["n"], "is `global const float *` in the kernel and a scalar of int"),
        ("x", ARGUMENTS["l"], "and local memory of int in the study: a pointer takes shape"),
        ("l", ARGUMENTS["x"], "is `local int *` in the kernel and a buffer of float in the study"),
        ("i", ARGUMENTS["x"], "is `read_only image2d_t` in the kernel and a buffer of float in the study: write image"),
        ("i", Image("i", "float", (2,), (2,), order="R"), "of 1 dimensions: write image = [...] with 2"),
        ("i", Image("i", "uchar4", (2, 2), (2, 2), "out"), 'with access = "out": make both the same'),
        ("s", ARGUMENTS["n"], "is `sampler_t` in the kernel and a scalar of int"),
        ("n", ARGUMENTS["s"], "is `int` in the kernel and a sampler in the study"),
        ("n", ARGUMENTS["one"], "is `int` in the kernel and a scalar of Point in the study"),
        ("p", Buffer("p", "struct Point { float3 place; float w; int tag; }", (4,), (4,)), "has no member w"),
        ("p", Buffer("p", "struct Point { int tag; float3 place; }", (4,), (4,)), "structs.Point: tag is at byte 16"),
        ("p", Buffer("p", "struct Point { float3 place; long tag; }", (4,), (4,)), "tag takes 4 bytes in the kernel"),
        ("p", Buffer("p", "struct Point { float3 place; }", (4,), (4,)), "takes 32 bytes in the kernel, 16 in"),
        ("p", Buffer("p", "struct Point { float3 place; }", (4,), (4,)), 'or "aligned(32)" before them'),
        ("p", Buffer("p", "struct Point aligned 64 { float3 place; int tag; }", (4,), (4,)), 'write "packed" before'),
    ],
)
def test_what_does_not_fit_is_one_line(session: Session, name: str, given: object, message: str) -> None:
    arguments = {**ARGUMENTS, name: given}
    wrong = Plan(SOURCE, (), (Launch("f", (1,), (1,), tuple(arguments)),), arguments)  # type: ignore[arg-type]
    with pytest.raises(Fault) as caught:
        check_signatures(session, wrong)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_may_be_meant_is_a_hint(session: Session) -> None:
    hints = check_signatures(session, plan(x={"type": "int", "access": "out"}, l={"type": "float"}))
    assert hints[0] == "f takes x as `global const float *`, in the study it is int"
    assert len(hints) == 2
    three, four = (Plan("kernel void h(global float3 *v) {}", (), (Launch("h", (1,), (1,), ("v",)),),
                        {"v": Buffer("v", kind, (4,), (4,))}) for kind in ("float", "float4"))  # fmt: skip
    assert check_signatures(session, three) == ["h takes v as `global float3 *`, in the study it is float"]
    assert check_signatures(session, four) == []
    outputs = replace(plan(), outputs={"x": Tolerance()})
    assert check_signatures(session, outputs) == ["x is an output, and const in the kernel"]
    names = tuple(ARGUMENTS)
    swapped = Launch("g", (1,), (1,), ("b", "a"))
    source = "kernel void g(global int *a, global int *b) {}"
    two = {name: Buffer(name, "int", (1,), (1,)) for name in ("a", "b")}
    assert check_signatures(session, Plan(source, (), (swapped,), two)) == ["g takes its arguments in the order a, b"]
    mixed = Launch("g", (1,), (1,), ("n", "b"))
    with pytest.raises(Fault, match=r"argument 1, n \(the kernel's a\), .*: name them in the kernel's order: a, b$"):
        check_signatures(session, Plan("kernel void g(global int *a, int b) {}", (), (mixed,), two | ARGUMENTS))
    few = Launch("f", (1,), (1,), names[:3])
    with pytest.raises(Fault, match=r"f takes 9 arguments \(n, a, x, .*\), launch 1 gives 3 \(n, a, x\)"):
        check_signatures(session, Plan(SOURCE, (), (few,), ARGUMENTS))


@pytest.mark.parametrize(
    ("kind", "normalized", "body", "said"),
    [
        (
            "uchar",
            False,
            "read_imagef(i, (int2)(0))",
            "f calls read_imagef for i, an image of uchar: write read_imageui, or",
        ),
        ("uchar", True, "read_imagef( i, (int2)(0))", ""),
        ("int", False, "read_imageui(i, (int2)(0))", "f calls read_imageui for i, an image of int: write read_imagei"),
        ("float", False, "/* read_imagei(i */ read_imagef(i, (int2)(0))", ""),
        ("uint", False, "0;\n#if 0\nread_imagei(i, (int2)(0));\n#endif\nread_imageui(i, (int2)(0))", ""),  # a variant
    ],
)
def test_an_image_read_as_another_type_of_channel_is_a_hint(
    session: Session, kind: str, normalized: bool, body: str, said: str
) -> None:
    image = Image("i", f"{kind}4", (2, 2), (2, 2), normalized=normalized)
    source = f"kernel void f(read_only image2d_t i) {{ {body}; }}"
    hints = check_signatures(session, Plan(source, (), (Launch("f", (1,), (1,), ("i",)),), {"i": image}))
    assert len(hints) == bool(said)
    assert "".join(hints).startswith(said)


def test_constant_memory_is_that_of_kernel_and_study(session: Session) -> None:
    source = "kernel void g(constant float *w, global float *y) {}\nkernel void h(global float *w, global float *y) {}"
    launches = {name: Launch(name, (1,), (1,), ("w", "y")) for name in "gh"}

    def told(entries: str, text: str = source, **changes: object) -> list[str]:
        buffers = {"w": Buffer("w", "float", (4,), (4,)), "y": Buffer("y", "float", (4,), (4,), "out")}
        buffers["w"] = replace(buffers["w"], **changes)  # type: ignore[arg-type]
        return check_signatures(session, Plan(text, (), tuple(launches[each] for each in entries), buffers))  # type: ignore[arg-type]

    with pytest.raises(
        Fault,
        match=r"^g takes w as `constant float \*`, .*: write constant = true in \[arguments\.w\], or a condition",
    ):
        told("gh")
    assert told("gh", constant=True) == told("g", access="scratch") == []
    assert told("h", constant=True) == []  # another configuration may take it so
    with pytest.raises(Fault, match=r"^h takes w as `global float \*`, .*: leave constant out in \[arguments\.w\]$"):
        told("h", source.partition("\n")[2] + " // constant", constant=True)


def test_where_the_driver_does_not_tell_nothing_is_said(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(session), "signatures", lambda *_: {})
    assert check_signatures(session, plan(n={"type": "float"})) == []


def test_signatures_are_read_from_the_compiler(session: Session) -> None:
    told = session.signatures(SOURCE)["f"]
    assert told[0] == KernelArgument("n", "int", "private", "", False)
    assert told[2] == KernelArgument("x", "float*", "global", "", True)
    assert [one.type_name for one in told[5:]] == ["Point*", "image2d_t", "sampler_t", "Point"]
    assert told[6].access == "read_only"


def test_what_told_of_its_arguments_is_built(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL takes as long to look up a program in its cache as for everything else of a short trial."""
    source, built = "kernel void told(global int *out) { out[0] = 1; }", []
    monkeypatch.delattr(session, "build")  # which builds once, whoever asks

    def program(context: object, text: str) -> object:
        built.append(text)
        return make(context, text)

    make = cl.Program
    monkeypatch.setattr(cl, "Program", program)
    session.signatures(source)
    session.build(source)
    assert built == [source]
    session.build(source)
    session.signatures(source)
    session.build(source, ["-DOTHER"])
    assert len(built) == 4


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("global const float (*a)[16]", "float*"),
        ("global unsigned int (*a)[4][3]", "uint*"),
        ("global volatile float (*a)[4]", "float*"),
        ("constant const unsigned char (*a)[2]", "uchar*"),
        ("global Point a[][5]", "Point*"),
    ],
)
def test_pointers_to_arrays_are_read_as_pointers_to_their_elements(session: Session, written: str, kind: str) -> None:
    source = f"typedef struct {{ int x; }} Point;\nkernel void f({written}) {{}}"
    assert session.signatures(source)["f"][0].type_name == kind


@pytest.mark.parametrize(
    ("taken", "shape", "form", "message"),
    [
        ("image2d_array_t", (2, 2, 2), "array", ""),
        ("image1d_buffer_t", (4,), "buffer", ""),
        ("image2d_array_t", (2, 2), "", 'of 2 dimensions: write image = [...] with 3 and form = "array" in [argum'),
        ("image2d_array_t", (2, 2, 2), "", 'image3d_t: write form = "array" in [arguments.i]'),
        ("image1d_t", (4,), "buffer", "image1d_buffer_t: leave form out of [arguments.i]"),
        ("image1d_array_t", (2, 2), "", "such images are not supported: let the kernel take an image2d_t or a buffer"),
    ],
)
def test_forms_of_images_are_those_of_the_kernel(
    session: Session, taken: str, shape: tuple[int, ...], form: str, message: str
) -> None:
    image = Image("i", "uchar4", shape, shape, form=form)
    given = Plan(f"kernel void f(read_only {taken} i) {{}}", (), (Launch("f", (1,), (1,), ("i",)),), {"i": image})
    if not message:
        assert check_signatures(session, given) == []
        return
    with pytest.raises(Fault) as caught:
        check_signatures(session, given)
    assert message in str(caught.value)
