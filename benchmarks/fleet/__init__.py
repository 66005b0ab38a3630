"""Measures of a cluster: simulated at any size, on this machine, on GPUs, and with every part killed."""
