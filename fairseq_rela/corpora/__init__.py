"""Download the raw corpora of the tasks and extract their sentence pairs; generate the synthetic corpus."""
