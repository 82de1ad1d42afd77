"""Reads the values of a section ``[notifier:NAME]``."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torchx_kit.secrets import read_secret
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.secrets import is_secret_reference, parse_secret


def check_keys(config: Mapping[str, str], known: Collection[str]) -> None:
    """Raise an error if a section has an unknown key.

    Raises:
        RequestError: A key is unknown; the message does not contain its value.
    """
    for key in config:
        if key not in known and key != "type":
            raise RequestError(
                f"unknown key '{key}';{nearest(key, known)} keys: {', '.join(known)}"
            )


def required(config: Mapping[str, str], key: str, example: str) -> str:
    """Return the value of a key.

    Args:
        config: The section.
        key: The key.
        example: A valid value, for the error message.

    Raises:
        RequestError: The value is missing or empty.
    """
    value = config.get(key, "").strip()
    if not value:
        raise RequestError(f"the key '{key}' is missing; set it, for example to {example}")
    return value


def seconds(config: Mapping[str, str], key: str, default: float, most: float) -> float:
    """Return the value of a key in seconds.

    Args:
        config: The section.
        key: The key.
        default: The result if the key is missing.
        most: The largest valid value.

    Raises:
        RequestError: The value is not a number greater than 0 and at most ``most``.
    """
    text = config.get(key, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= most:
        raise RequestError(f"{key} = {text:.40}: not a number of seconds from 0 to {most:g}")
    return value


def secret_value(key: str, text: str) -> str:
    """Return the secret if the value of a key is a reference ``${secret:NAME}``, else the value.

    Raises:
        RequestError: The reference is invalid, or the secret is missing, or not protected from
            other users.
    """
    try:
        reference = parse_secret(text)
        return text if reference is None else read_secret(reference)
    except RequestError as e:
        raise RequestError(f"{key}: {e}") from None


def required_secret(config: Mapping[str, str], key: str) -> str | None:
    """Return the secret to which the value of a key refers; None if the key is missing.

    Raises:
        RequestError: The value is not a reference to a secret, or the secret is missing. The
            message does not contain the value.
    """
    text = config.get(key, "").strip()
    if not text:
        return None
    if not is_secret_reference(text):
        raise RequestError(
            f"the value of '{key}' must be a reference to a secret, such as ${{secret:hook-key}};"
            " set TORCHX_SECRET_HOOK_KEY, or write the secret to $TORCHX_HOME/secrets/hook-key"
        )
    return secret_value(key, text)
