"""Which devices are alike: the vendor, the kind and the architecture that a fingerprint tells. Stdlib only."""

from __future__ import annotations

import re

_CAPABILITIES = (
    (r"b[23]00|gb[23]00", "10.0"),
    (r"rtx-50\d0|rtx-pro-\d+-blackwell", "12.0"),
    (r"h[128]00|h20|gh200", "9.0"),
    (r"rtx-40\d0|l4|l40s?|rtx-\d+-ada", "8.9"),
    (r"rtx-30\d0|a10g?|a16|a2|a40|rtx-a\d+", "8.6"),
    (r"a100|a30|a800", "8.0"),
    (r"rtx-20\d0|gtx-16\d0|t4g?|titan-rtx|quadro-rtx-\d+", "7.5"),
    (r"v100s?|titan-v", "7.0"),
    (r"gtx-10\d0|p4|p40|titan-xp?", "6.1"),
    (r"p100", "6.0"),
)
"""Compute capabilities of NVIDIA's models, for those that no database here has seen.

Source: NVIDIA, CUDA GPU compute capability, https://developer.nvidia.com/cuda-gpus.
"""


def vendor(fingerprint: str) -> str:
    """Return the first word of a fingerprint: `nvidia`."""
    return fingerprint.partition("-")[0]


def kind(fingerprint: str) -> str:
    """Return `cpu` or `gpu` (which includes accelerators): only a CPU's fingerprint ends without its memory."""
    return "cpu" if fingerprint.endswith("cu") else "gpu"


def compute_units(fingerprint: str) -> int:
    """Return the compute units in a fingerprint; 0 where it names none."""
    found = re.search(r"(\d+)cu(-\d+g)?$", fingerprint)
    return int(found[1]) if found else 0


def architecture(fingerprint: str, capability: str = "") -> str:
    """Return a word that devices of one architecture share; "" where it cannot be told.

    NVIDIA: the compute capability that the driver told, else that of the model's name. AMD: the `gfx` name,
    without its stepping. CPUs: the vendor, since one OpenCL compiler serves them all.
    """
    maker = vendor(fingerprint)
    if kind(fingerprint) == "cpu":
        return f"{maker} cpu"
    name = re.sub(r"-\d+cu(-\d+g)?$", "", fingerprint.removeprefix(f"{maker}-"))
    if maker == "nvidia":
        words = f"-{name}-"
        capability = capability or next((c for names, c in _CAPABILITIES if re.search(f"-({names})-", words)), "")
        return f"nvidia {capability}" if capability else ""
    gfx = re.search(r"gfx(\d+)[0-9a-f]{2}\b", name)
    return f"{maker} gfx{gfx[1]}" if gfx else ""
