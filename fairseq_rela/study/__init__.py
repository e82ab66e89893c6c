"""Studies: train several models with several seeds, measure them, and compare them with a baseline."""
