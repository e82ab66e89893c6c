"""``python -m fairseq_rela.cli``, which is ``rela``."""

import sys

from .main import main

sys.exit(main())
