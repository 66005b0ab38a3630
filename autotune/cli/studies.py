"""`autotune studies`: which studies can be searched here."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from autotune.cli.options import DatabaseOption, JsonOption
from autotune.cli.output import facts, write_json
from autotune.devices import select
from autotune.errors import AutotuneError
from autotune.model import DeviceInfo
from autotune.store import Store
from autotune.study import Problem, Study, study_paths
from autotune.text import line


def list_studies(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List the bundled studies and those in ./studies.

    Shows kernel, parameters, valid configurations, and how many trials are stored. Valid configurations are counted at
    the default size on the default device, or on a typical GPU if there is no device.

    \b
    Examples:
      autotune studies
      autotune studies --json
    """
    info: DeviceInfo | None = None
    with suppress(AutotuneError):
        info = select.find_device(None)
    with Store.to_read(database) as store:
        counts = store.counts()
    rows = [_study(name, info, counts) for name in sorted(study_paths())]
    if as_json:
        write_json(rows)
        return
    facts((row["study"], _study_text(row)) for row in rows)


def _study(name: str, info: DeviceInfo | None, counts: dict[str, int]) -> dict[str, Any]:
    row: dict[str, Any] = {"study": name, "about": "", "kernel": "", "parameters": [], "valid": None, "error": ""}
    row["trials"] = counts.get(name, 0)
    try:
        study = Study.load(name)
        row |= {"kernel": str(study.text.kernel_path), "parameters": list(study.parameters), "about": study.about}
        row["trials"] = counts.get(study.name, 0)
        row["valid"] = len(Problem(study, device=info).space)
    except AutotuneError as error:
        row["error"] = f"error: {error}"
    return row


def _study_text(row: dict[str, Any]) -> str:
    if row["valid"] is None:
        return f"{line(row['error'])}\n"
    counts = f"{row['valid']:,} valid configurations, {row['trials']:,} trials stored"
    told = (row["about"], row["kernel"], " ".join(row["parameters"]), counts)
    return "".join(f"{line(text)}\n" for text in told)
