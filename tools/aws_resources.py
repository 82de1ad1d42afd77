"""Write the module of AWS instance types from a table: ``python tools/aws_resources.py write``.

``check`` fails if ``write`` would change torchx_resources_aws/instances.py. The table is
tools/data/aws_instances.csv. It has a row for each instance type; its column ``source`` is

``upstream``
    for a name that upstream's TorchX registers: all numbers, ``mem_mb`` included, are those of
    torchx-nightly 2026.10.26 (printed by its ``named_resources``);
``aws``
    for a row from AWS's ``DescribeInstanceTypes``. The column ``mem_mb`` is empty: the module has
    96 % of the instance's memory, rounded down, as upstream has, because the host's system uses the
    rest. ``efa`` is 0 for families that have no accelerators and are not made for HPC: an EFA
    request would keep a pod from nodes without the EFA device plugin.

``compare moto-VERSION-py3-none-any.whl [FAMILY ...]`` prints the rows that differ from AWS's
answers in moto's wheel (``pip download --no-deps moto``), and the missing rows of each FAMILY. The
table has no bare-metal types without accelerators.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from workspace import ROOT, write_or_check

TABLE = ROOT / "tools" / "data" / "aws_instances.csv"
MODULE = ROOT / "packages/torchx-resources-aws/src/torchx_resources_aws/instances.py"
RECORDED = "moto/ec2/resources/instance_types.json.gz"


def read_table() -> tuple[list[str], list[dict[str, str]]]:
    """Return the comment lines and the rows of the CSV file."""
    lines = TABLE.read_text("utf-8").splitlines()
    comment = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    return comment, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def row_of(name: str, answer: dict[str, Any]) -> dict[str, str]:
    """Return the row for AWS's description of an instance type."""
    devices = answer.get("NeuronInfo", {}).get("NeuronDevices", [])
    numbers = {
        "vcpu": answer["VCpuInfo"]["DefaultVCpus"],
        # An instance with a fraction of a GPU has one logical GPU.
        "gpu": sum(gpu["LogicalGpuCount"] for gpu in answer.get("GpuInfo", {}).get("Gpus", [])),
        "memory_mib": answer["MemoryInfo"]["SizeInMiB"],
        "efa": answer["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "neuron": sum(device["Count"] for device in devices),
    }
    row = {key: str(value) for key, value in numbers.items()}
    return {"instance_type": name, **row, "mem_mb": "", "source": "aws"}


def compare(wheel: Path, families: list[str]) -> list[str]:
    """Return AWS's rows, as CSV lines, that differ from the table or are missing in it.

    Args:
        wheel: The wheel of moto, which has AWS's answers.
        families: The families of which missing rows are returned.
    """
    with zipfile.ZipFile(wheel) as archive:
        recorded = json.loads(gzip.decompress(archive.read(RECORDED)))
    table = {row["instance_type"]: row for row in read_table()[1]}
    found = []
    for name, answer in recorded.items():
        row, ours = row_of(name, answer), table.get(name)
        if ours is not None and ours["efa"] == "0":
            row["efa"] = "0"
        missing = ours is None and name.partition(".")[0] in families
        if missing or (ours is not None and ours["source"] == "aws" and ours != row):
            found.append(",".join(row.values()))
    return sorted(found)


def render() -> str:
    """Return the text of the module."""
    comment, rows = read_table()
    lines = [
        '"""AWS instance types: vCPUs, GPUs, memory in MB, EFA interfaces, Neuron devices.',
        "",
        "Written by `python tools/aws_resources.py write` from tools/data/aws_instances.csv:",
        "",
        *comment,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "#: Instance type -> (vCPUs, GPUs, memory in MB, EFA interfaces, Neuron devices).",
        "INSTANCES: dict[str, tuple[int, int, int, int, int]] = {",
    ]
    for row in rows:
        memory = int(row["mem_mb"] or int(row["memory_mib"]) * 96 // 100)
        numbers = (row["vcpu"], row["gpu"], memory, row["efa"], row["neuron"])
        lines.append(f'    "{row["instance_type"]}": ({", ".join(map(str, numbers))}),')
    return "\n".join([*lines, "}", ""])


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["compare"] and len(arguments) > 1:
        print(*compare(Path(arguments[1]), arguments[2:]), sep="\n")
        return 0
    return write_or_check(MODULE, render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
