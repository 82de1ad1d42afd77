from acme_schedulers import AcmeScheduler

from torchx.plugins import register


@register.scheduler()
def site_batch(session_name: str, **kwargs: object) -> AcmeScheduler:
    return AcmeScheduler(session_name, pool="namespace")
