"""Tasks. fairseq imports every module of this folder if the package is given as ``--user-dir``."""
