"""Worker processes, and the Evaluator over them."""
