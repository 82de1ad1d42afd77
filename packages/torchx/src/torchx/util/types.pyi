# Type stub: the names of the module beside it.
from torchx._legacy_types import decode as decode
from torchx._legacy_types import decode_from_string as decode_from_string
from torchx._legacy_types import decode_optional as decode_optional
from torchx._legacy_types import get_argparse_param_type as get_argparse_param_type
from torchx._legacy_types import is_bool as is_bool
from torchx._legacy_types import is_primitive as is_primitive
from torchx._legacy_types import none_throws as none_throws
from torchx._legacy_types import to_dict as to_dict
from torchx._legacy_types import to_list as to_list
