"""Download, unpack and align the raw corpora of the tasks; make the synthetic one."""
