"""The options of ``kubernetes_mcad``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchx_kit.names.limits import DNS_LABEL
from torchx_sched_k8s.options import SUBDOMAIN
from torchx_specs.options.structured import StructuredOpts


@dataclass
class KubernetesMCADOpts(StructuredOpts):
    """Options of ``kubernetes_mcad``."""

    namespace: str = "default"
    """namespace of the cluster"""

    service_account: str | None = None
    """service account of the pods"""

    priority: int | None = None
    """priority of the AppWrapper; a larger number comes first"""

    priority_class_name: str | None = None
    """priority class of the pods, which a co-scheduler looks at"""

    image_secret: str | None = None
    """secret with which images are pulled"""

    coscheduler_name: str | None = None
    """scheduler that starts the pods of a role together"""

    network: str | None = None
    """name of a further network for the pods"""

    validate_spec: bool = True
    """asks the cluster whether it would take the AppWrapper, before it is created"""

    context: str | None = None
    """context of the kubeconfig, its current one unless given"""


def problems_of_mcad(opts: KubernetesMCADOpts) -> Iterable[str]:
    """Yields everything that is wrong with options, one line each."""
    if not DNS_LABEL.accepts(opts.namespace):
        yield f"option namespace={opts.namespace!r} is no name of a namespace"
    for name in ("service_account", "priority_class_name", "image_secret", "coscheduler_name"):
        value = getattr(opts, name)
        if value is not None and not SUBDOMAIN.accepts(value):
            yield f"option {name}={value!r} is no name of an object"
