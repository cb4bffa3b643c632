"""`python -m steincv`."""

import sys

from .cli import main

sys.exit(main())
