"""Is the number right: eight own studies of short kernels, and a simulated device whose truth is known."""
