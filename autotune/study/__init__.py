"""From a study file to the plan of a configuration, with its input and expected data."""
