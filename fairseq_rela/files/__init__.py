"""Read and write files whole, lock them, read ``configs/``, run worker processes and fairseq's commands."""
