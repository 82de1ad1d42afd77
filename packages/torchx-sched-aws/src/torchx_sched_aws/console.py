"""Addresses of pages in the AWS console."""

from __future__ import annotations

# The consoles of partitions whose regions have no domain of their own.
_DOMAINS = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}


def console_url(arn: str, service: str, page: str) -> str:
    """Return the address of a page in the console of an object's partition and region.

    >>> console_url("arn:aws-cn:batch:cn-north-1:1:job/id", "batch", "jobs/detail/id")
    'https://console.amazonaws.cn/batch/home?region=cn-north-1#jobs/detail/id'

    Args:
        arn: ARN of the object.
        service: Name of the service in the address, such as ``batch``.
        page: The part of the address after ``#``.
    """
    partition, _, region = arn.split(":")[1:4]
    domain = _DOMAINS.get(partition, f"{region}.console.aws.amazon.com")
    return f"https://{domain}/{service}/home?region={region}#{page}"
