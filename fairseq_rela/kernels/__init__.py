"""Faster implementations of the slowest operations; tests compare each with plain PyTorch."""
