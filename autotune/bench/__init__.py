"""Beside the device: from a plan to its report."""
