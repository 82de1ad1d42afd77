"""Import path of the notebook magics in older TorchX releases; they are in ``torchx-notebook``.

Importing this module in IPython adds the magics, as importing ``torchx_notebook`` does.
"""

import importlib.util
import sys

from torchx._forward import forward, install_hint

if "IPython" in sys.modules and importlib.util.find_spec("torchx_notebook") is not None:
    import torchx_notebook

forward(__name__, "torchx_notebook", missing=install_hint("notebook", "torchx-notebook"))
