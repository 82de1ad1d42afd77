# Type stub: the names of the module beside it.
from argparse import ArgumentDefaultsHelpFormatter as _ArgumentDefaultsHelpFormatter_
from argparse import MetavarTypeHelpFormatter as _MetavarTypeHelpFormatter_
from argparse import RawDescriptionHelpFormatter as _RawDescriptionHelpFormatter_
from torchx._argparse import parse_args as parse_args
from torchx_specs.components.materialize import ComponentArgs as ComponentArgs
from torchx._argparse import component_args_from_str as component_args_from_str
from torchx._argparse import materialize_appdef as materialize_appdef
from torchx.util.types import decode as decode
from torchx.util.types import decode_optional as decode_optional
from torchx.util.types import get_argparse_param_type as get_argparse_param_type
from torchx.util.types import is_bool as is_bool
from torchx_specs.file_linter import get_fn_docstring as get_fn_docstring
from torchx_specs.model.app import AppDef as AppDef
from torchx_specs.model.handles import make_app_handle as make_app_handle
from torchx_specs.model.mounts import BindMount as BindMount
from torchx_specs.model.mounts import DeviceMount as DeviceMount
from torchx_specs.model.mounts import MountType as MountType
from torchx_specs.model.mounts import VolumeMount as VolumeMount
from torchx_specs.model.mounts import parse_mounts as parse_mounts

class TorchXArgumentHelpFormatter(_RawDescriptionHelpFormatter_, _ArgumentDefaultsHelpFormatter_, _MetavarTypeHelpFormatter_): ...
