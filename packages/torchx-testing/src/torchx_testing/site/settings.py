"""The settings of a run of ``torchx conformance``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_specs.redaction import MASK, is_secret, masked_text, masked_value

# Shorter values, such as "yes", are common words, and masking them would spoil the text.
_SHORTEST_SECRET = 6


def without_secrets(text: str, settings: Mapping[str, Any] | None = None) -> str:
    """Return a text with secrets masked: values of secret variables, and texts of known forms.

    Args:
        text: The text.
        settings: Names and values, such as options, in addition to the environment variables.
    """
    for name, value in {**os.environ, **(settings or {})}.items():
        if isinstance(value, str) and len(value) >= _SHORTEST_SECRET and is_secret(name):
            text = text.replace(value, MASK)
    return masked_text(text)


@dataclass(frozen=True)
class SiteSettings:
    """The settings of a run.

    Attributes:
        kind: What is tested: scheduler, tracker, workspace or distribution.
        name: Name of the tested object.
        create: Creates the tested object; called with the session of a scheduler, with the
            configuration of a tracker, or without an argument.
        cfg: The options of each submission or build.
        unsupported: The features that the site lacks, with the reasons.
        pending_cfg: Options with which a job stays pending, or None.
        image: The image of the jobs, or the base image of workspaces.
        timeout: Time limit of each job, in seconds.
        config: The configuration of a tracker; it contains ``{test}``.
    """

    kind: str
    name: str
    create: Callable[..., Any]
    cfg: Mapping[str, Any] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    pending_cfg: Mapping[str, Any] | None = None
    image: str = ""
    timeout: float = 300.0
    config: str = ""

    def masked_cfg(self) -> dict[str, Any]:
        """Return the options without secrets, for the report."""
        return {key: masked_value(key, value) for key, value in self.cfg.items()}

    def masked(self, text: str) -> str:
        """Return a text without secrets.

        Secrets are the values of options and environment variables whose names suggest a secret,
        and texts that look like a secret.
        """
        return without_secrets(text, {**self.cfg, **(self.pending_cfg or {})})


#: The settings of the run in this process; the command sets them before it starts pytest.
current: SiteSettings | None = None


def settings_of(kind: str) -> SiteSettings:
    """Return the settings of a run that tests a ``kind``, else settings that fail every test."""
    if current is not None and current.kind == kind:
        return current

    def nothing(*args: Any) -> Any:
        raise RuntimeError("there is nothing to test; run `torchx conformance`")

    return SiteSettings(kind, "", nothing)
