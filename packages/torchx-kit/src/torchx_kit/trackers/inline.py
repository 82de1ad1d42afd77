"""A tracker's configuration in a ``data:`` URI.

A remote job cannot read the launcher's files. The launcher therefore passes the text of a
configuration file in the job's environment, as a ``data:`` URI (RFC 2397). fsspec opens such a URI
like a file. A job with an older TorchX release expects a file name, and can read the URI as well.
"""

from __future__ import annotations

from torchx_specs.errors import TrackerError

_PREFIX = "data:"
# The characters that need no escape: those of urllib.parse.quote, and ":".
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~/:")


def to_data_uri(text: str) -> str:
    """Return ``text`` as a URI without characters that are special to a shell or a macro.

    >>> to_data_uri("root_path=/tmp/${x}")
    'data:,root_path%3D/tmp/%24%7Bx%7D'
    """
    # urllib.parse.quote is not used: its import would slow down the start of every local job.
    quoted = (chr(byte) if chr(byte) in _SAFE else f"%{byte:02X}" for byte in text.encode())
    return f"{_PREFIX},{''.join(quoted)}"


def from_data_uri(config: str) -> str | None:
    """Return the text in a ``data:`` URI, or None if ``config`` is not one.

    >>> from_data_uri("data:text/plain;base64,YT0x"), from_data_uri("/etc/tracker.conf")
    ('a=1', None)

    Raises:
        TrackerError: The URI is malformed.
    """
    if not config.startswith(_PREFIX):
        return None
    head, comma, body = config[len(_PREFIX) :].partition(",")
    if not comma:
        raise TrackerError("an inlined configuration begins with 'data:' but has no ','")
    import binascii

    try:
        data = _unquoted(body)
        if head.endswith(";base64"):
            data = binascii.a2b_base64(data)
        return data.decode()
    except ValueError as e:  # binascii.Error and UnicodeDecodeError are ValueErrors
        raise TrackerError(f"an inlined configuration cannot be decoded: {e}") from None


def _unquoted(text: str) -> bytes:
    # urllib.parse.unquote is not used, because its import would slow down a job's first write.
    first, *rest = text.encode().split(b"%")
    return first + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest)
