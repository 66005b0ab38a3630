"""Whole commands beside Kernel Tuner's: the kernels of the race, and the race (`benchmarks/engine.py peer`)."""
