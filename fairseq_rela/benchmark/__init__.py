"""``rela bench``: variants side by side in one process; what is timed, how, and the figures."""
