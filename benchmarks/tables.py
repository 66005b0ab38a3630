"""The tables in the pages of docs/, from the result files of benchmarks/results/.

    python benchmarks/tables.py            # writes them anew between their markers
    python benchmarks/tables.py --check    # exit code 1 if a page differs from the files

A result file is JSON: `question`, `command`, `machine`, `date`, `commit`, `asked`, `note`, `columns` and `rows`. A
benchmark writes its own with `save`; only the newest is kept, git has the earlier ones. In a page, the text between
`<!-- table NAME -->` and `<!-- end -->` is generated.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("benchmarks", "benchmarks-more", "reliability", "search")]
RESULTS = Path(__file__).parent / "results"
_TABLE = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def save(
    name: str,
    *,
    question: str,
    command: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    machine: str = "",
    asked: str = "",
    note: str = "",
) -> Path:
    """Write `results/NAME.json` with the machine, the day and the commit of the checkout; return its path."""
    found = {
        "question": question,
        "command": command,
        "machine": machine or _machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "asked": asked,
        "note": note,
        "columns": list(columns),
        "rows": [list(row) for row in rows],
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return path


def saved(name: str, command: str) -> list[list[Any]]:
    """Return the rows of `results/NAME.json` that this command wrote at this commit."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    return found["rows"] if (found["command"], found["commit"]) == (command, _commit()) else []


def model() -> str:
    """Return the first GPU's model in a word, such as `h100`, or `cpu` if there is none."""
    words = " ".join(_gpus()[:1]).partition(",")[0].lower().split()
    return next((word for word in words if any(map(str.isdigit, word))), "cpu")


def _gpus() -> list[str]:
    return _said(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines()


def _machine() -> str:
    gpus = _gpus()
    names = [f"{len(gpus)} x {gpus[0].replace(', ', ', driver ')}"] if gpus else []
    return ", ".join([*names, f"{os.cpu_count()} CPU cores", f"Python {platform.python_version()}"])


def _commit() -> str:
    return _said(["git", "rev-parse", "--short", "HEAD"]).strip()


def _said(words: list[str]) -> str:
    """Return what a program prints, or an empty string if it is not installed or fails."""
    try:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def rendered(page: str) -> str:
    """Return the page with every table made from the result files."""
    return _TABLE.sub(lambda match: f"{match[1]}{_table(match[2])}{match[3]}", page)


def _table(name: str) -> str:
    found = json.loads((RESULTS / f"{name}.json").read_text())
    asked = f" Asked: {found['asked']}." if found["asked"] else ""
    note = f" {found['note']}" if found["note"] else ""
    about = f"**{found['question']}** `{found['command']}`, {found['machine']}, {found['date']}.{asked}{note}"
    rows = [_row(found["columns"]), _row(["---"] * len(found["columns"])), *map(_row, found["rows"])]
    return "\n".join([about, "", *rows, ""])


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Write the pages, or check them; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    stale = [page for page in PAGES if rendered(page.read_text()) != page.read_text()]
    for page in stale:
        if options.check:
            print(f"docs/{page.name} is not what benchmarks/results/ says: python benchmarks/tables.py")
        else:
            page.write_text(rendered(page.read_text()))
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
