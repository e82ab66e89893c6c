"""Turn raw text into tokens and BPE pieces, and back."""
