"""Remove attention heads from a trained translation model."""
