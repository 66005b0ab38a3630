"""The entry of `autotune` and `python -m autotune`.

`autotune best` is on the path of other people's builds: it starts with the standard library alone. Everything
else, and anything unusual about `best`, is the command line's.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune import asking


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        if sys.argv[1:2] == ["best"]:
            from autotune import asking

            asked = asking.parse(sys.argv[2:])
            if asked is not None:
                sys.exit(_answered(asked))
        from autotune.cli import app
    except KeyboardInterrupt:  # while a module is imported: the command line itself catches what comes later
        sys.exit(130)

    app()


def _answered(asked: asking.Asked) -> int:
    from autotune import asking

    try:
        return asking.run(asked)
    except BrokenPipeError:
        # The reader (`head`) has left: nobody is there to be told, and Python's own flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    main()
