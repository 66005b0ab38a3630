"""The entry of `autotune` and `python -m autotune`.

`autotune best` is on the path of other people's builds: it starts with the standard library alone. Everything
else, and anything unusual about `best`, is the command line's.
"""

from __future__ import annotations

import sys

from autotune import process
from autotune.errors import OutputError


def main() -> None:
    """Run the command line and leave with its exit code."""
    process.prepare()
    code: int | str | None = 0
    try:
        try:
            _run(sys.argv[1:])
        except SystemExit as end:  # how Typer ends a command, done or not
            code = end.code
        sys.stdout.flush()
    except OutputError as error:
        if error.what:
            print(f"error: {error}", file=sys.stderr)
        code = code or error.exit_code
    except KeyboardInterrupt:  # while a module is imported: the command line itself catches what comes later
        code = 130
    sys.exit(code)


def _run(words: list[str]) -> None:
    if words[:1] == ["best"]:
        from autotune.lookup import asking

        asked = asking.parse(words[1:])
        if asked is not None:
            sys.exit(asking.run(asked))
    from autotune import cli

    cli.run(words)


if __name__ == "__main__":
    main()
