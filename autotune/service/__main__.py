"""The entry of child.py: ties the process to the server before the other imports, which take a while."""

import sys

from autotune.pool import die_with

if __name__ == "__main__":
    die_with(int(sys.argv[2]))
    from autotune.service.child import main

    main(sys.argv[1])
