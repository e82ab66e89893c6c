"""Models; fairseq imports every module of this folder when it is given as part of ``--user-dir``."""
