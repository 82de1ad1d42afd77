"""Makes ``host_conformance`` importable."""

from __future__ import annotations

import os
import sys

# pytest's importlib mode does not add the directory of a test file to sys.path
sys.path.insert(0, os.path.dirname(__file__))
