"""Tests of the example sessions in the documentation of the schedulers for AWS, on the double."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aws_double import AwsDouble


@pytest.mark.parametrize("page", ["aws_batch", "aws_sagemaker"])
def test_the_session_of_the_page(
    use_double: AwsDouble, page_session: Callable[[str], None], page: str
) -> None:
    page_session(page)
