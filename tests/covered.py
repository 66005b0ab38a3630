"""How tests start processes without coverage: starting coverage takes as long as everything else in a short process."""

COVERED_BY = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""Variables that make coverage start with a Python process."""
