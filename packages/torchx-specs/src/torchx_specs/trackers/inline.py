"""A tracker's configuration as one piece of text that needs no file: a ``data:`` URI.

A remote job does not see the launcher's files, so a tracker that is configured by a file has its
text travel in the environment. The form is RFC 2397's: fsspec opens such a URI as if it were a
file, and so do older in-job tools that know only a file's name.
"""

from __future__ import annotations

from torchx_specs.errors import TrackerError

_PREFIX = "data:"
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/:")


def to_data_uri(text: str) -> str:
    """Returns ``text`` as a URI without anything that a shell or a macro would take for its own.

    >>> to_data_uri("root_path=/tmp/${x}")
    'data:,root_path%3D/tmp/%24%7Bx%7D'
    """
    return (
        _PREFIX
        + ","
        + "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode())
    )


def from_data_uri(config: str) -> str | None:
    """Returns the text in a ``data:`` URI, None if ``config`` is something else.

    >>> from_data_uri("data:text/plain;base64,YT0x"), from_data_uri("/etc/tracker.conf")
    ('a=1', None)

    Raises:
        TrackerError: it is a ``data:`` URI, and a broken one
    """
    if not config.startswith(_PREFIX):
        return None
    head, comma, body = config[len(_PREFIX) :].partition(",")
    if not comma:
        raise TrackerError("an inlined configuration begins with 'data:' and has no ','")
    import binascii

    try:
        data = _unquoted(body)
        if head.endswith(";base64"):
            data = binascii.a2b_base64(data)
        return data.decode()
    except ValueError as e:  # binascii.Error and UnicodeDecodeError are ValueErrors
        raise TrackerError(f"an inlined configuration cannot be decoded: {e}") from None


def _unquoted(text: str) -> bytes:
    # urllib.parse would cost a job a third of the time that a small write takes
    first, *rest = text.encode().split(b"%")
    return first + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest)
