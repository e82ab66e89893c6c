"""From raw text to fairseq's binarised data, each step usable and tested alone."""
