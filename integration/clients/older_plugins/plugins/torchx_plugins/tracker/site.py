from acme_parts import create_tracker

from torchx.plugins import register


@register.tracker(name="site_tracker")
def create(config: str) -> object:
    return create_tracker(config)
