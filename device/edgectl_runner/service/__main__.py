"""``python3 -m edgectl_runner.service VERB``: as ``edgectl_runner`` itself, for the service."""

from __future__ import annotations

import sys

from edgectl_runner.__main__ import main
from edgectl_runner.service.control import VERBS

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], VERBS))
