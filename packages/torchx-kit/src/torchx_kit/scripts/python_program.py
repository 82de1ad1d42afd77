"""A Python program that imports its own modules and none of the working directory."""

from __future__ import annotations


def python_program(module: str) -> str:
    """Return a text for ``python -c`` that calls ``main(sys.argv[1:])`` of a module.

    The working directory is removed from ``sys.path``, because its files could replace modules.
    """
    return (
        "import sys; sys.path[:] = [path for path in sys.path if path];"
        f" from {module} import main; sys.exit(main(sys.argv[1:]))"
    )
