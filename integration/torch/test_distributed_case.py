"""``DistributedTestCase`` with processes of PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import ddp_functions
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from torchx_testing.distributed import DistributedTestCase


class TestDistributed(DistributedTestCase):
    def test_every_process_returns_its_result(self) -> None:
        results = self.run_ddp(2, ddp_functions.rank_and_sum)(21)
        assert results == {0: (0, 42.0), 1: (1, 42.0)}

    def test_a_failure_is_raised(self) -> None:
        with pytest.raises(ChildFailedError, match="fail"):
            self.run_ddp(1, ddp_functions.fail)()
