"""Read and write files whole, lock folders, run worker processes and fairseq's commands."""
