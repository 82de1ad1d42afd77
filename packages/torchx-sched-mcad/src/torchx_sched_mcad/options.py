"""The options of ``kubernetes_mcad``."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_specs.options.structured import StructuredOpts


@dataclass
class KubernetesMCADOpts(StructuredOpts):
    """Options of ``kubernetes_mcad``."""

    namespace: str = ""
    """namespace of the job; unset: the namespace of the kubeconfig's context, or default"""

    service_account: str | None = None
    """service account of the pods"""

    priority: int | None = None
    """priority of the AppWrapper; the largest number comes first"""

    priority_class_name: str | None = None
    """priority class of the pods, for the co-scheduler"""

    image_secret: str | None = None
    """secret with the credentials to pull images"""

    coscheduler_name: str | None = None
    """co-scheduler that starts the pods of a role together"""

    network: str | None = None
    """name of an additional network for the pods"""

    validate_spec: bool = True
    """check the AppWrapper by a dry run on the cluster before it is created"""

    context: str | None = None
    """context of the kubeconfig; unset: the current context"""
