"""`python -m steincv`."""

import sys

from .cli import program

sys.exit(program())
