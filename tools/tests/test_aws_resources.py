from __future__ import annotations

import json

import aws_resources
import distributions

UPSTREAM = distributions.BY_NAME["torchx-resources-aws"].folder / "tests" / "upstream_aws.json"


def test_the_module_is_what_the_table_gives() -> None:
    assert aws_resources.MODULE.read_text("utf-8") == aws_resources.render()


def test_the_table_names_its_sources_and_keeps_upstreams_rows() -> None:
    comment, rows = aws_resources.read_table()
    assert [line.split(":")[0] for line in comment] == ["# upstream", "# aws"]
    upstream = {f"aws_{row['instance_type']}" for row in rows if row["source"] == "upstream"}
    assert upstream == set(json.loads(UPSTREAM.read_text("utf-8"))["resources"])
    assert {row["source"] for row in rows} == {"upstream", "aws"}


def test_a_row_from_aws_own_description() -> None:
    answer = {
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
        "GpuInfo": {"Gpus": [{"Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 0.125}]},
        "NetworkInfo": {"EfaInfo": {"MaximumEfaInterfaces": 2}},
    }
    row = aws_resources.row_of("g6f.xlarge", answer)
    assert (row["vcpu"], row["gpu"], row["memory_mib"], row["efa"]) == ("4", "1", "16384", "2")
    assert aws_resources.row_of("m7i.48xlarge", answer)["efa"] == "0"


def test_small_instances_come_before_large_ones() -> None:
    names = ["m5.metal", "m5.24xlarge", "m5.xlarge", "m5.large", "m5.2xlarge", "c5.large"]
    assert sorted(names, key=aws_resources.order) == [
        "c5.large", "m5.large", "m5.xlarge", "m5.2xlarge", "m5.24xlarge", "m5.metal"
    ]  # fmt: skip
