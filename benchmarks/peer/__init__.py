"""Whole commands beside Kernel Tuner's: the kernels they race on, and the race (`benchmarks/engine.py peer`)."""
