"""The table of AWS instance types, and the module that is written from it.

``python tools/aws_resources.py write`` writes torchx_resources_aws/instances.py from
tools/data/aws_instances.csv; ``check`` says whether it is up to date. The CSV has a row for each
instance type, in one of two ways, by its column ``source``:

``upstream``
    TorchX has registered this name before; all of its numbers are as they were there
    (torchx-nightly 2026.10.26, printed by its ``named_resources``), ``mem_mb`` included.
``aws``
    What AWS's own ``DescribeInstanceTypes`` says. ``mem_mb`` is empty: it is 96 % of the instance's
    memory, rounded down, as upstream has it, because the system of the host takes some.

``python tools/aws_resources.py refresh moto-VERSION-py3-none-any.whl`` renews the rows of the
second kind for the families in :data:`FAMILIES`, from the answers of AWS that moto's wheel (PyPI)
ships: ``pip download --no-deps moto``.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tools" / "data" / "aws_instances.csv"
MODULE = ROOT / "packages/torchx-resources-aws/src/torchx_resources_aws/instances.py"
RECORDED = "moto/ec2/resources/instance_types.json.gz"
COLUMNS = ("instance_type", "vcpu", "gpu", "memory_mib", "efa", "neuron", "mem_mb", "source")

# Nodes of these are made for several of them together, and so get their EFA interfaces; elsewhere
# asking for one would keep a pod from nodes that have no device plugin for it.
ACCELERATED = (
    *("g4dn", "g5", "g5g", "g6", "g6e", "g6f", "g7", "g7e", "gr6", "gr6f"),
    *("p3", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300", "p6e-gb200"),
    *("inf1", "inf2", "trn1", "trn1n", "trn2"),
)
HPC = ("hpc6a", "hpc6id", "hpc7a", "hpc7g", "hpc8a")
GENERAL = (
    *("t3", "m5", "m6i", "m7a", "m7g", "m7i", "m8a", "m8g", "m8i"),
    *("c5", "c6i", "c7a", "c7g", "c7i", "c8a", "c8g", "c8i"),
    *("r6i", "r7a", "r7g", "r7i", "r8a", "r8g", "r8i"),
)
FAMILIES = (*ACCELERATED, *HPC, *GENERAL)

MEMORY_SHARE = (96, 100)


def read_table() -> tuple[list[str], list[dict[str, str]]]:
    """The comment at the top of the CSV, and its rows."""
    lines = TABLE.read_text("utf-8").splitlines()
    comment = [line for line in lines if line.startswith("#")]
    return comment, list(csv.DictReader(line for line in lines if not line.startswith("#")))


def refresh(wheel: Path) -> int:
    """Renews the rows that are AWS's."""
    with zipfile.ZipFile(wheel) as archive:
        recorded = json.loads(gzip.decompress(archive.read(RECORDED)))
        year, month, day, *_ = archive.getinfo(RECORDED).date_time
    comment, rows = read_table()
    kept = {row["instance_type"]: row for row in rows if row["source"] == "upstream"}
    renewed = {
        name: row_of(name, answer)
        for name, answer in recorded.items()
        if name.partition(".")[0] in FAMILIES and name not in kept and wanted(name)
    }
    comment = [line for line in comment if not line.startswith("# aws:")]
    version = wheel.name.split("-")[1]
    date = f"{year}-{month:02}-{day:02}"
    comment.append(f"# aws: DescribeInstanceTypes, as recorded in moto {version} of {date} (PyPI)")
    text = io.StringIO()
    text.write("".join(f"{line}\n" for line in comment))
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for name in sorted({*kept, *renewed}, key=order):
        writer.writerow(kept.get(name) or renewed[name])
    TABLE.write_text(text.getvalue(), "utf-8")
    print(f"{TABLE.relative_to(ROOT)}: {len(kept)} rows kept, {len(renewed)} renewed")
    return 0


def wanted(name: str) -> bool:
    """Bare metal is left to those who run it themselves, except where GPUs are in it."""
    family, _, size = name.partition(".")
    return "metal" not in size or family in ACCELERATED


def row_of(name: str, answer: dict[str, Any]) -> dict[str, str]:
    """A row of the table from AWS's description of an instance type."""
    family = name.partition(".")[0]
    gpus = answer.get("GpuInfo", {}).get("Gpus", [])
    neurons = answer.get("NeuronInfo", {}).get("NeuronDevices", [])
    efa = answer["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    numbers = {
        "vcpu": answer["VCpuInfo"]["DefaultVCpus"],
        # a fraction of a GPU is one GPU to whoever is on the instance
        "gpu": sum(gpu["LogicalGpuCount"] for gpu in gpus),
        "memory_mib": answer["MemoryInfo"]["SizeInMiB"],
        "efa": efa if family in (*ACCELERATED, *HPC) else 0,
        "neuron": sum(device["Count"] for device in neurons),
    }
    row = {key: str(value) for key, value in numbers.items()}
    return {"instance_type": name, **row, "mem_mb": "", "source": "aws"}


def order(name: str) -> tuple[str, int, str]:
    """Families in order, and small instances before large ones."""
    family, _, size = name.partition(".")
    small = ("nano", "micro", "small", "medium", "large", "xlarge")
    times = size.removesuffix("xlarge")
    number = 10 * int(times) if times.isdigit() else small.index(size) if size in small else 10_000
    return family, number, size


def render() -> str:
    """The module."""
    comment, rows = read_table()
    lines = [
        '"""AWS instance types: vCPUs, GPUs, memory in MB, EFA interfaces, Neuron devices.',
        "",
        "Written by `python tools/aws_resources.py write` from tools/data/aws_instances.csv:",
        "",
        *(line.removeprefix("# ").strip() for line in comment),
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "#: Instance type -> (vCPUs, GPUs, memory in MB, EFA interfaces, Neuron devices).",
        "INSTANCES: dict[str, tuple[int, int, int, int, int]] = {",
    ]
    share, whole = MEMORY_SHARE
    for row in rows:
        memory = int(row["mem_mb"] or int(row["memory_mib"]) * share // whole)
        numbers = (row["vcpu"], row["gpu"], memory, row["efa"], row["neuron"])
        lines.append(f'    "{row["instance_type"]}": ({", ".join(map(str, numbers))}),')
    return "\n".join([*lines, "}", ""])


def main(argv: list[str]) -> int:
    if argv[:1] == ["refresh"] and len(argv) == 2:
        return refresh(Path(argv[1]))
    if argv == ["write"]:
        MODULE.write_text(render(), "utf-8")
        print(f"wrote {MODULE.relative_to(ROOT)}")
        return 0
    if argv == ["check"]:
        if MODULE.exists() and MODULE.read_text("utf-8") == render():
            return 0
        print(f"{MODULE.relative_to(ROOT)}: run `python tools/aws_resources.py write`")
        return 1
    print("usage: python tools/aws_resources.py write|check|refresh WHEEL", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
