from __future__ import annotations

import sys
from pathlib import Path

# The tools are scripts that import each other from their folder, so put the folder on the path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
