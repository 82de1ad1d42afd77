# Type stub: the names of the module beside it.
from torchx_kit.names.ids import END_CANDIDATES as END_CANDIDATES
from torchx_kit.names.ids import START_CANDIDATES as START_CANDIDATES
from torchx_kit.names.ids import make_unique as make_unique
from torchx_kit.names.ids import random_id as _get_len_random_id_
from torchx_kit.names.ids import random_id as random_id
from torchx_kit.names.ids import random_uint64 as random_uint64

get_len_random_id = _get_len_random_id_
