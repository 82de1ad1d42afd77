"""Finds the object that ``torchx conformance`` tests, and its settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torchx_kit.trackers.lookup import find_factory
from torchx_kit.workspace.mixin import load_builder
from torchx_runner.config import api as config
from torchx_runner.installed_schedulers import InstalledSchedulers, unknown_scheduler
from torchx_specs.errors import RequestError, nearest
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.plugins.entry_points import entry_points, normalize
from torchx_specs.schedulers.older import features_of
from torchx_testing.features import DISTRIBUTION, SCHEDULER, TRACKER, WORKSPACE
from torchx_testing.site.settings import SiteSettings

#: Features that the command cannot test without a setup of the site, with the reasons.
NEEDS_SETUP = {
    "cancel_pending": "no --pending-cfg was given, so no job stays pending",
    "secrets": "torchx conformance stores no secrets in your site",
}


def scheduler(
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
    unsupported = {
        **NEEDS_SETUP,
        **features_of(created).lacks(),
        **_unsupported(declared, SCHEDULER),
    }
    created.close()
    cfg = _options(opts, cfg_texts)
    config.apply(name, cfg, opts=opts)
    pending_cfg = _options(opts, pending_texts) or None
    if pending_cfg and unsupported["cancel_pending"] == NEEDS_SETUP["cancel_pending"]:
        del unsupported["cancel_pending"]
    return SiteSettings("scheduler", name, create, cfg, unsupported, pending_cfg, image, timeout)


def tracker(name: str, tracker_config: str, declared: Iterable[str]) -> SiteSettings:
    """Return the settings for the tests of a tracker.

    Raises:
        TorchXError: No tracker has this name, or an argument is not valid.
    """
    factory = find_factory(name)
    if "{test}" not in tracker_config:
        raise RequestError(
            "--config must contain {test}, because each test needs an empty store; for the tracker"
            " fsspec, write"
            " --config 'protocol=file;auto_mkdir=true;root_path=/tmp/conformance/{test}'"
        )
    unsupported = _unsupported(declared, TRACKER)
    return SiteSettings("tracker", name, factory, unsupported=unsupported, config=tracker_config)


def workspace(
    name: str, cfg_texts: Iterable[str], declared: Iterable[str], image: str
) -> SiteSettings:
    """Return the settings for the tests of a workspace builder.

    Raises:
        TorchXError: No builder has this name, or an argument is not valid.
    """
    cfg = _options(load_builder(name).opts(), cfg_texts)
    unsupported = _unsupported(declared, WORKSPACE)
    return SiteSettings(
        "workspace", name, lambda: load_builder(name), cfg, unsupported, image=image
    )


def distribution(name: str, declared: Iterable[str]) -> SiteSettings:
    """Return the settings for the tests of a distribution.

    Raises:
        RequestError: No distribution with plugins has this name, or a declaration is not valid.
    """
    found = {normalize(entry.distribution) for entry in entry_points("torchx")}
    if normalize(name) not in found:
        raise RequestError(
            f"no distribution with plugins is named '{name}';{nearest(name, found)} distributions:"
            f" {', '.join(sorted(found))}"
        )
    unsupported = _unsupported(declared, DISTRIBUTION)
    return SiteSettings("distribution", name, dict, unsupported=unsupported)


def _options(opts: runopts, texts: Iterable[str]) -> dict[str, CfgVal]:
    cfg: dict[str, CfgVal] = {}
    for text in texts:
        cfg.update(opts.cfg_from_str(text, ignore_unknown=False))
    return cfg


def _unsupported(declared: Iterable[str], features: Collection[str]) -> dict[str, str]:
    """Return the features of ``--unsupported``, with the reasons.

    Raises:
        RequestError: A declaration has no reason, or names no feature.
    """
    found = {}
    for text in declared:
        feature, _, reason = text.partition("=")
        if feature not in features:
            raise RequestError(
                f"--unsupported {text}: unknown feature '{feature}';{nearest(feature, features)}"
                f" features: {', '.join(sorted(features))}"
            )
        if not reason.strip():
            raise RequestError(
                f"--unsupported {text}: the reason is missing; write {feature}=REASON"
            )
        found[feature] = reason.strip()
    return found
