"""The settings of a run of ``torchx conformance``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_runner.config import api as config
from torchx_runner.installed_schedulers import (
    InstalledSchedulers,
    SchedulerFactory,
    unknown_scheduler,
)
from torchx_specs.errors import RequestError, nearest
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.redaction import MASK, is_secret, masked_text
from torchx_specs.schedulers.older import features_of
from torchx_testing.scheduler_cases.fixtures import FEATURES

# Shorter values, such as "yes", are common words, and masking them would spoil the text.
_SHORTEST_SECRET = 6
#: Features that the command cannot test without a setup of the site, with the reasons.
NEEDS_SETUP = {
    "cancel_pending": "no --pending-cfg was given, so no job stays pending",
    "secrets": "torchx conformance stores no secrets in your site",
}


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
        name: Name of the scheduler.
        create: Creates the scheduler; called with the session.
        cfg: The options of each submission.
        unsupported: The features that the site lacks, with the reasons.
        pending_cfg: Options with which a job stays pending, or None.
        image: The image of the jobs.
        timeout: Time limit of each job, in seconds.
    """

    name: str = ""
    create: SchedulerFactory | None = None
    cfg: Mapping[str, Any] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    pending_cfg: Mapping[str, Any] | None = None
    image: str = ""
    timeout: float = 300.0

    def masked(self, text: str) -> str:
        """Return a text without secrets.

        Secrets are the values of options and environment variables whose names suggest a secret,
        and texts that look like a secret.
        """
        return without_secrets(text, {**self.cfg, **(self.pending_cfg or {})})


#: The settings of the run in this process; the command sets them before it starts pytest.
current = SiteSettings()


def settings_of(
    name: str,
    cfg_texts: Iterable[str],
    pending_texts: Iterable[str],
    declared: Iterable[str],
    image: str,
    timeout: float,
) -> SiteSettings:
    """Return the settings for the tests of a scheduler.

    Raises:
        TorchXError: No scheduler has this name, or an argument is not valid.
    """
    installed = InstalledSchedulers()
    if name not in installed:
        raise unknown_scheduler(name, installed)
    create = installed[name]
    created = create("conformance")
    opts = created.run_opts()
    cfg = _options(opts, cfg_texts)
    config.apply(name, cfg, opts=opts)
    pending_cfg = _options(opts, pending_texts)
    needs_setup = dict(NEEDS_SETUP)
    if pending_cfg:
        del needs_setup["cancel_pending"]
    unsupported = {**needs_setup, **features_of(created).lacks(), **_unsupported(declared)}
    created.close()
    return SiteSettings(name, create, cfg, unsupported, pending_cfg or None, image, timeout)


def _options(opts: runopts, texts: Iterable[str]) -> dict[str, CfgVal]:
    cfg: dict[str, CfgVal] = {}
    for text in texts:
        cfg.update(opts.cfg_from_str(text, ignore_unknown=False))
    return cfg


def _unsupported(declared: Iterable[str]) -> dict[str, str]:
    """Return the features of ``--unsupported``, with the reasons.

    Raises:
        RequestError: A declaration has no reason, or names no feature.
    """
    found = {}
    for text in declared:
        feature, _, reason = text.partition("=")
        if feature not in FEATURES:
            raise RequestError(
                f"--unsupported {text}: unknown feature '{feature}';{nearest(feature, FEATURES)}"
                f" features: {', '.join(sorted(FEATURES))}"
            )
        if not reason.strip():
            raise RequestError(
                f"--unsupported {text}: the reason is missing; write {feature}=REASON"
            )
        found[feature] = reason.strip()
    return found
