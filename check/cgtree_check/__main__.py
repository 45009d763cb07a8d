"""python3 -m cgtree_check run PROGRAM: as cgtree-check."""

import sys

from cgtree_check import main

sys.exit(main())
