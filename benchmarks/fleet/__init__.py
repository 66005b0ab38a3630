"""A cluster measured: simulated at any size, on this machine, on GPUs, and killed in every part."""
