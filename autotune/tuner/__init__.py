"""The search: its loop, resume, finale and result."""
