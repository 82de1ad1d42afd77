"""Tests of ``DistributedTestCase`` with processes of PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import ddp_functions
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from torchx_testing.distributed import DistributedTestCase


class TestDistributed(DistributedTestCase):
    def test_run_ddp_returns_the_result_of_each_process(self) -> None:
        found = self.run_ddp(2, ddp_functions.rank_and_sum)(21)
        assert found == {0: (0, 42.0), 1: (1, 42.0)}

    def test_run_ddp_raises_the_failure_of_a_process(self) -> None:
        with pytest.raises(ChildFailedError, match="fail"):
            self.run_ddp(1, ddp_functions.fail)()
