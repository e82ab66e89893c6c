"""Looking inside a trained model: which attention runs, and how sparse it is."""
