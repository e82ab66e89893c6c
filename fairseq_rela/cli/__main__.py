"""``python -m fairseq_rela.cli``, which is ``rela``."""

import sys

from . import main

sys.exit(main())
