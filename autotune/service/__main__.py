"""The entry of child.py: tied to the server before anything else is imported, which takes a while."""

import sys

from autotune.pool import die_with

if __name__ == "__main__":
    die_with(int(sys.argv[2]))
    from autotune.service.child import main

    main(sys.argv[1])
