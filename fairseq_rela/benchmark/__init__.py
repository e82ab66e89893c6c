"""The command ``rela bench``: time attention variants in turn in one process, and draw figures of the results."""
