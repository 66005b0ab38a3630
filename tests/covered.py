"""Processes of tests of which no coverage is wanted: to start it takes as long as all else that a short one does."""

COVERED_BY = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
"""Variables by which it starts with a process of Python."""
