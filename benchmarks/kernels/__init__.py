"""The parts of benchmarks/kernels.py: limits, peers, searches, and the table of results."""
