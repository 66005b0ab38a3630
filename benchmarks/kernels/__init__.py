"""What benchmarks/kernels.py is made of: limits, peers, searches, and the table that they end in."""
