# Type stub: the names of the module beside it.
from torchx._legacy_specs import EFA_DEVICE as EFA_DEVICE
from torchx._legacy_specs import NEURON_DEVICE as NEURON_DEVICE
from torchx_kit.devices import DEVICES as DEVICES
from torchx_kit.devices import get_device_mounts as get_device_mounts
from torchx_kit.devices import to_devicemounts as to_devicemounts
from torchx_specs.model.mounts import DeviceMount as DeviceMount
