"""Hand-written forms of what costs time, each beside the plain PyTorch it must equal."""
