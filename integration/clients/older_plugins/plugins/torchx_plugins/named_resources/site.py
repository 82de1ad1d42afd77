from torchx.plugins import powers_of_two_gpus, register
from torchx.specs import Resource


@register.named_resource(aliases=["site_default"], fractionals=powers_of_two_gpus)
def site_a100(fraction: float = 1.0) -> Resource:
    return Resource(cpu=int(64 * fraction), gpu=int(8 * fraction), memMB=int(1_024_000 * fraction))
