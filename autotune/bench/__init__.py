"""Beside the device, in a worker: from a plan to its report. `serve` is what the worker runs."""

from autotune.bench.arena import GUARD
from autotune.bench.messages import (
    DOING,
    EndToEnd,
    Inspect,
    Inspected,
    Job,
    Keep,
    Kept,
    Phase,
    Probe,
    Ready,
    Retime,
    Setup,
    Sound,
    Turn,
    Use,
)
from autotune.bench.probe import machine_fault, unwritable
from autotune.bench.report import BUILD_S, FIRST_S, Limits, Report, first_error, is_too_large
from autotune.bench.timing import Rules

__all__ = [
    "BUILD_S",
    "DOING",
    "FIRST_S",
    "GUARD",
    "EndToEnd",
    "Inspect",
    "Inspected",
    "Job",
    "Keep",
    "Kept",
    "Limits",
    "Phase",
    "Probe",
    "Ready",
    "Report",
    "Retime",
    "Rules",
    "Setup",
    "Sound",
    "Turn",
    "Use",
    "first_error",
    "is_too_large",
    "machine_fault",
    "unwritable",
]
