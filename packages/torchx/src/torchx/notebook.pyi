# Type stub: the names of the module beside it.
from torchx_notebook import load_ipython_extension as load_ipython_extension
from torchx_notebook.files import WORKSPACE as WORKSPACE
from torchx_notebook.files import get_workspace as get_workspace
from torchx_notebook.files import workspacefile as workspacefile
from torchx_notebook.files import write_file as write_file
from torchx_notebook.magics import Job as Job
from torchx_notebook.magics import torchx as torchx
from torchx_notebook.views import show as show
