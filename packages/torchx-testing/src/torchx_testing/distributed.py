"""A test case for functions that run in several processes with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torchx_testing.fixtures import TestWithTmpDir

Ret = TypeVar("Ret")


class DistributedTestCase(TestWithTmpDir):
    """Runs functions in several processes of this machine, as ``torchrun`` does.

    ::

        def all_reduced() -> float:
            torch.distributed.init_process_group("gloo")
            tensor = torch.ones(1)
            torch.distributed.all_reduce(tensor)
            return tensor.item()

        class MyTest(DistributedTestCase):
            def test_sum(self) -> None:
                self.assertEqual({0: 2.0, 1: 2.0}, self.run_ddp(2, all_reduced)())

    Each function must be in a module that the processes can import.
    """

    __test__ = False

    def run_ddp(self, world_size: int, fn: Callable[..., Ret]) -> Callable[..., dict[int, Ret]]:
        """Return a function that passes its arguments to ``fn`` in every process.

        Args:
            world_size: Number of processes.
            fn: The function that each process runs, with the environment that ``torchrun`` sets.

        Returns:
            A function that waits for all processes and returns their results by rank. It raises
            ``torch.distributed.elastic.multiprocessing.errors.ChildFailedError`` if a process
            fails.
        """
        from torch.distributed.launcher import LaunchConfig, elastic_launch

        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=world_size,
            run_id=type(self).__name__,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=0.01,
        )
        launch: Any = elastic_launch(config=config, entrypoint=fn)
        run: Callable[..., dict[int, Ret]] = launch
        return run
