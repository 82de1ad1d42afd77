"""Check that no modules of ``torchx_specs`` import each other in a circle.

Imports in functions and imports for type checkers count, because a reader follows them, too.
"""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

import grimp

PACKAGE = "torchx_specs"


def main() -> int:
    graph = grimp.build_graph(PACKAGE)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as e:
        print("these modules import each other:", " <- ".join(e.args[1]), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
