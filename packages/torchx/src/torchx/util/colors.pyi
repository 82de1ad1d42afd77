# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_cli.output.colors import BLUE as BLUE
from torchx_cli.output.colors import ENDC as ENDC
from torchx_cli.output.colors import GRAY as GRAY
from torchx_cli.output.colors import GREEN as GREEN
from torchx_cli.output.colors import ORANGE as ORANGE
