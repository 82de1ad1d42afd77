# Type stub: the names of the module beside it.
from torchx.util.io import read_conf_file as read_conf_file
from torchx_runner.components.finder import ComponentsFinder as ComponentsFinder
from torchx_runner.components.finder import CustomComponentsFinder as CustomComponentsFinder
from torchx_runner.components.finder import ModuleComponentsFinder as ModuleComponentsFinder
from torchx_runner.components.finder import get_builtin_source as get_builtin_source
from torchx_runner.components.finder import get_component as get_component
from torchx_runner.components.finder import get_components as get_components
from torchx_runner.components.finder import is_namespace_package as is_namespace_package
from torchx_runner.components.finder import is_package as is_package
from torchx_runner.components.finder import module_relname as module_relname
from torchx_runner.components.rules import Component as _Component_
from torchx.util.types import none_throws as none_throws
from torchx_specs.errors import ComponentNotFoundException as ComponentNotFoundException
from torchx_specs.errors import ComponentValidationException as ComponentValidationException
from torchx_specs.file_linter import ComponentFunctionValidator as ComponentFunctionValidator
from torchx_specs.file_linter import get_fn_docstring as get_fn_docstring
from torchx_specs.file_linter import validate as validate
from torchx_specs.model.app import AppDef as AppDef

_Component = _Component_
