"""Is the measured number right: eight own studies of short kernels, and a simulated device with known times."""
