"""autotune: finds the fastest verified parameters of OpenCL kernels and keeps them for every tool."""
