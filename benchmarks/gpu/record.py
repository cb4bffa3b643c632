"""What a script measured, as JSON in the file it was given, if it was given one."""

import json
import sys
from typing import Any


def record(measured: dict[str, Any]) -> None:
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w") as file:
            json.dump(measured, file, indent=1)
