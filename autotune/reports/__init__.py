"""What is told of results: comparisons, charts, baselines, one use end to end."""
