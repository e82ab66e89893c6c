"""Studies: rows of models by seeds, trained, measured and compared with a baseline by one command."""
