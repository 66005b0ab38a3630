#!/bin/sh
# A CI job: does the kernel still build, are its results right, is the stored best still valid? Exit codes tell.
# On a machine without a GPU it runs on PoCL, which pip installs: that also shows whether results are right.
#
#     pip install /path/to/autotune && sh ci.sh
set -eu
export AUTOTUNE_DB="${AUTOTUNE_DB:-tuned.db}" # keep it between runs in the CI's cache, or in the repository

autotune check ./scale.toml                     # 1: a wrong result, 2: a study or a kernel that does not build
autotune search ./scale.toml --trials 4 --seed 1 # continues where the last job ended: stored trials count
autotune best ./scale.toml --format json > tuned.json
autotune export trials.jsonl                    # for the archive, and for other machines: autotune import
