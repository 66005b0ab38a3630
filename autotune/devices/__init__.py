"""OpenCL devices: which there are, and one of them as a session."""
