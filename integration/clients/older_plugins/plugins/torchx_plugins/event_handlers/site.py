import logging

from acme_parts import event_handler

from torchx.plugins import register


@register.event_handler(name="null")
def create() -> logging.Handler:
    return event_handler()
