"""Analysis of a trained model: sparsity, null rates, head diversity, alignments, and ranking of sentence pairs."""
