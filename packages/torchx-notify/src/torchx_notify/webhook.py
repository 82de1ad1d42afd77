"""The notifier ``webhook``: sends a notification as JSON to a URL."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.message import Message
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from torchx_kit.retry import Backoff, retry
from torchx_notify.settings import check_keys, required, required_secret, seconds, secret_value
from torchx_specs.errors import BackendError, RequestError

#: The header with the signature of the body: ``sha256=`` and the HMAC-SHA256 in hexadecimal.
SIGNATURE = "X-TorchX-Signature-256"
#: The header with the id of the notification, which is the same in all attempts.
DELIVERY = "X-TorchX-Delivery"

_KEYS = ("url", "key", "timeout", "retry")
_TIMEOUT = 10.0
_RETRY = 60.0
_LONGEST = 3600.0
# The status codes after which the same request may succeed.
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})


class WebhookError(BackendError):
    """The receiver refused a notification, or did not answer.

    The URL may contain a secret, so no message contains it.
    """


class _TemporaryError(WebhookError):
    """The same request may succeed later."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes each redirect an error: only the configured URL may receive the notification."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: Any,
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> None:
        return None


@dataclass(frozen=True, repr=False)
class Webhook:
    """Sends notifications to a URL.

    Args:
        url: The URL, which may contain a secret.
        key: The key of the signature; None sends no signature.
        timeout: How long one attempt waits for an answer, in seconds.
        limit: How long to send a notification again after temporary failures, in seconds.
        sleep: Function that waits for a number of seconds.
    """

    url: str
    key: str | None = None
    timeout: float = _TIMEOUT
    limit: float = _RETRY
    sleep: Callable[[float], None] = time.sleep

    def __call__(self, data: Mapping[str, Any]) -> None:
        """Send a notification.

        Args:
            data: The notification; the keys ``id`` and ``sent`` are added.

        Raises:
            WebhookError: The receiver refused the notification, or did not answer in time.
        """
        delivery = str(uuid.uuid4())
        sent = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
        body = json.dumps({"id": delivery, "sent": sent, **data}, ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "torchx-notify",
            DELIVERY: delivery,
        }
        if self.key is not None:
            digest = hmac.new(os.fsencode(self.key), body, hashlib.sha256).hexdigest()
            headers[SIGNATURE] = f"sha256={digest}"
        retry(
            lambda: self._post(body, headers),
            _TemporaryError,
            Backoff(self.limit, sleep=self.sleep),
        )

    def _post(self, body: bytes, headers: Mapping[str, str]) -> None:
        # The errors of these libraries may contain the URL: only their types and codes are shown.
        try:
            # create() refuses every scheme but http and https.
            request = urllib.request.Request(  # noqa: S310
                self.url, body, dict(headers), method="POST"
            )
            opener = urllib.request.build_opener(_NoRedirects)
            with opener.open(request, timeout=self.timeout):
                return
        except urllib.error.HTTPError as e:
            e.close()
            if 300 <= e.code < 400:
                raise WebhookError(
                    f"the receiver answered {e.code} (a redirect, which is not followed);"
                    " configure the final URL"
                ) from None
            kind = _TemporaryError if e.code in _TEMPORARY else WebhookError
            raise kind(f"the receiver answered {e.code}") from None
        except urllib.error.URLError as e:
            raise _TemporaryError(f"no connection: {_reason(e.reason)}") from None
        except (OSError, HTTPException) as e:
            raise _TemporaryError(f"no answer: {_reason(e)}") from None
        except ValueError:
            raise WebhookError("the URL is malformed") from None


def _reason(error: object) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, socket.gaierror):
        return "the name of the host is unknown"
    return getattr(error, "strerror", None) or type(error).__name__


def create(config: Mapping[str, str]) -> Callable[[Mapping[str, Any]], None]:
    """Return the notifier that a section ``[notifier:NAME]`` configures.

    Args:
        config: ``url`` and ``key`` (references to secrets; the URL may be plain text), ``timeout``
            and ``retry`` in seconds.

    Raises:
        RequestError: A key is unknown, a value is missing or malformed, or a secret is missing. No
            message contains the URL or the key.
    """
    check_keys(config, _KEYS)
    url = secret_value("url", required(config, "url", "${secret:team-hook}"))
    try:
        parsed = urlsplit(url)
        is_url = parsed.scheme in ("http", "https") and bool(parsed.hostname)
        is_url = is_url and parsed.port != 0 and url.isprintable() and " " not in url
    except ValueError:
        is_url = False
    if not is_url:
        raise RequestError("the value of 'url' is not a URL that begins with https:// or http://")
    if parsed.username is not None:
        raise RequestError(
            "the value of 'url' contains a user name or a password, which is not sent; use 'key',"
            " with which the receiver checks the signature"
        )
    return Webhook(
        url,
        required_secret(config, "key"),
        seconds(config, "timeout", _TIMEOUT, _LONGEST),
        seconds(config, "retry", _RETRY, _LONGEST),
    )
