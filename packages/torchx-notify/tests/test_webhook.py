"""Tests that a webhook signs and retries requests, follows no redirect, and hides its URL.

Other tests check the webhook's section in the configuration.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from torchx_notify import webhook
from torchx_notify.webhook import DELIVERY, SIGNATURE, WebhookError, create
from torchx_specs.errors import RequestError

if TYPE_CHECKING:
    from conftest import Receiver

DATA = {"handle": "s://s/train-é", "state": "FAILED", "ended": None, "first_failure": {"role": "r"}}
SECRET = "hunter2-hunter2"

Webhook = partial(webhook.Webhook, sleep=lambda seconds: None)


def test_body_is_json_and_signed(receiver: Receiver) -> None:
    Webhook(f"{receiver.url}/hook?team=a", SECRET)(DATA)
    ((path, headers, body),) = receiver.received
    assert path == "/hook?team=a"
    assert headers["content-type"] == "application/json; charset=utf-8"
    data = json.loads(body)
    assert data.pop("id") == headers[DELIVERY.lower()]
    assert data.pop("sent").endswith("Z")
    assert data == DATA
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers[SIGNATURE.lower()] == f"sha256={digest}"


def test_without_a_key_there_is_no_signature(receiver: Receiver) -> None:
    Webhook(receiver.url)(DATA)
    assert SIGNATURE.lower() not in receiver.received[0][1]


@pytest.mark.parametrize("answer", [500, 503, 429, "close"])
def test_request_is_repeated_until_it_succeeds(receiver: Receiver, answer: int | str) -> None:
    receiver.answers = [answer, answer]
    Webhook(receiver.url, SECRET)(DATA)
    assert len(receiver.received) == 3
    first, *others = receiver.received
    assert others == [first, first]  # the same id, so that the receiver can drop repetitions


def test_receiver_that_hangs_is_asked_again(receiver: Receiver) -> None:
    receiver.answers = ["hang"]
    Webhook(receiver.url, timeout=0.2)(DATA)
    assert len(receiver.received) == 2


def test_receiver_that_does_not_recover_is_an_error(receiver: Receiver) -> None:
    receiver.answers = [503] * 1000
    with pytest.raises(WebhookError, match="the receiver answered 503"):
        Webhook(receiver.url, limit=2)(DATA)
    assert len(receiver.received) == 3  # after 0, 0.5 and 1.5 s


@pytest.mark.parametrize("answer", [400, 401, 404, 410])
def test_refused_request_is_not_repeated(receiver: Receiver, answer: int) -> None:
    receiver.answers = [answer]
    with pytest.raises(WebhookError, match=f"the receiver answered {answer}"):
        Webhook(receiver.url)(DATA)
    assert len(receiver.received) == 1


@pytest.mark.parametrize("answer", [301, 302, 303, 307, 308])
def test_redirect_is_not_followed(receiver: Receiver, answer: int) -> None:
    receiver.answers = [answer]
    receiver.location = f"{receiver.url}/other"
    with pytest.raises(WebhookError, match="a redirect, which is not followed"):
        Webhook(receiver.url, SECRET)(DATA)
    assert [path for path, _, _ in receiver.received] == ["/"]


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1/{SECRET}",
        f"http://no-such-host.invalid/{SECRET}",
        f"http://127.0.0.1:99999/{SECRET}",
        f"https://127.0.0.1:1/{SECRET}",
    ],
)
def test_errors_do_not_contain_the_url(url: str) -> None:
    with pytest.raises(WebhookError) as caught:
        Webhook(url, limit=0.0)(DATA)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)


def test_values_come_from_secrets(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCHX_SECRET_HOOK", f"{receiver.url}/{SECRET}")
    folder = tmp_path / "torchx" / "secrets"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "key").write_text("k")
    os.chmod(folder / "key", 0o600)
    config = {"type": "webhook", "url": "${secret:hook}", "key": "${secret:key}", "retry": "5"}
    notify: Any = create(config)
    notify(DATA)
    assert receiver.received[0][0] == f"/{SECRET}"
    assert SIGNATURE.lower() in receiver.received[0][1]
    assert SECRET not in repr(notify)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "the key 'url' is missing"),
        ({"url": " "}, "the key 'url' is missing"),
        ({"url": f"ftp://host/{SECRET}"}, "is not a URL that begins with https://"),
        ({"url": f"http://host/a b/{SECRET}"}, "is not a URL that begins with https://"),
        ({"url": f"https://host:x/{SECRET}"}, "is not a URL that begins with https://"),
        ({"url": f"https://me:{SECRET}@host/"}, "contains a user name or a password"),
        ({"url": "${secret:absent}"}, "url: the secret 'absent' is missing; set TORCHX_"),
        ({"url": "https://h/", "key": "${secret:no}"}, "key: the secret 'no' is missing; set T"),
        ({"url": "https://h/", "key": SECRET}, "must be a reference to a secret"),
        ({"url": "https://h/", "kee": SECRET}, "unknown key 'kee'; did you mean 'key'?"),
        ({"url": "https://h/", "timeout": "soon"}, "timeout = soon: not a number of seconds"),
        ({"url": "https://h/", "retry": "-1"}, "retry = -1: not a number of seconds"),
        ({"url": "https://h/", "timeout": "nan"}, "timeout = nan: not a number of seconds"),
    ],
)
def test_malformed_section_is_one_line_without_the_secret(
    config: dict[str, str], message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        create(config)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)
