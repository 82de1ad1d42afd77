# Type stub: the names of the module beside it.
from torchx_cli.output.colors import BLUE as BLUE
from torchx_cli.output.colors import ENDC as ENDC
from torchx_cli.output.colors import GRAY as GRAY
from torchx_cli.output.colors import GREEN as GREEN
from torchx_cli.output.colors import ORANGE as ORANGE
