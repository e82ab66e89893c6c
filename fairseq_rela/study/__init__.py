"""A study: rows of models over seeds, from a list in YAML to a page beside the paper."""
