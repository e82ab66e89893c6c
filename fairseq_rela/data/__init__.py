"""Make fairseq's binarised data from raw text, in steps that can be used alone."""
