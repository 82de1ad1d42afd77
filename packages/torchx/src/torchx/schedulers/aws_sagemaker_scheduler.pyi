# Written by `python tools/faces.py write`: what type checkers see of the module.
