"""Devices that are alike: what a fingerprint, a compute capability or a name says of an architecture.

The same table of names serves Python and the headers that `autotune export --format header` writes.
"""

from __future__ import annotations

import re

NVIDIA = (
    ("b200 b300 gb200 gb300", "10.0"),
    ("rtx-50#0 rtx-pro-*-blackwell", "12.0"),
    ("h100 h200 h800 h20 gh200", "9.0"),
    ("rtx-40#0 l4 l40 l40s rtx-*-ada", "8.9"),
    ("rtx-30#0 a10 a10g a16 a2 a40 rtx-a*", "8.6"),
    ("a100 a30 a800", "8.0"),
    ("rtx-20#0 gtx-16#0 t4 t4g titan-rtx quadro-rtx-*", "7.5"),
    ("v100 v100s titan-v", "7.0"),
    ("gtx-10#0 p4 p40 titan-x titan-xp", "6.1"),
    ("p100", "6.0"),
)
"""Words in the names of NVIDIA's models (`#` a digit, `*` several) and their compute capability, for models that no
database here has seen. Source: NVIDIA, CUDA GPU compute capability, https://developer.nvidia.com/cuda-gpus.
"""

CPUS = {"intel": "xeon core celeron pentium atom", "amd": "epyc ryzen threadripper opteron", "arm": "neoverse cortex"}
"""Words in the names of a vendor's CPUs."""


def vendor(fingerprint: str) -> str:
    """Return the first word of a fingerprint: `nvidia`."""
    return fingerprint.partition("-")[0]


def kind(fingerprint: str) -> str:
    """Return `cpu` or `gpu` (which includes accelerators): only a CPU's fingerprint ends without its memory."""
    return "cpu" if fingerprint.endswith("cu") else "gpu"


def compute_units(fingerprint: str) -> int:
    """Return the compute units in a fingerprint, or 0 if it names none."""
    found = re.search(r"(\d+)cu(-\d+g)?$", fingerprint)
    return int(found[1]) if found else 0


def architecture(fingerprint: str, capability: str = "") -> str:
    """Return a word that devices of one architecture share, or "" if the architecture is unknown.

    NVIDIA: the compute capability that the driver reported, else the one of the model's name. AMD: the `gfx` name,
    without its stepping. CPUs: the vendor, since one OpenCL compiler serves them all.
    """
    maker = vendor(fingerprint)
    if kind(fingerprint) == "cpu":
        return f"{maker} cpu"
    name = re.sub(r"-\d+cu(-\d+g)?$", "", fingerprint.removeprefix(f"{maker}-"))
    if maker == "nvidia":
        capability = capability or next((told for words, told in NVIDIA if _is_named(words, name)), "")
        return f"nvidia {capability}" if capability else ""
    gfx = re.search(r"gfx(\d+)[0-9a-f]{2}\b", name)
    return f"{maker} gfx{gfx[1]}" if gfx else ""


def words_of(architecture: str) -> tuple[str, ...]:
    """Return the words that show an architecture in a device's name, as in NVIDIA; `%` is a hexadecimal digit."""
    maker, _, rest = architecture.partition(" ")
    if rest == "cpu":
        return tuple(CPUS.get(maker, "").split())
    if maker == "nvidia":
        return tuple(word for words, told in NVIDIA if told == rest for word in words.split())
    return (f"{rest}%%",) if rest.startswith("gfx") else ()


def _is_named(words: str, name: str) -> bool:
    patterns = words.replace("*", r"\d+").replace("#", r"\d").replace(" ", "|")
    return re.search(f"-({patterns})-", f"-{name}-") is not None
