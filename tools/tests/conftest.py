from __future__ import annotations

import sys
from pathlib import Path

# The tools are scripts that import each other from their folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
