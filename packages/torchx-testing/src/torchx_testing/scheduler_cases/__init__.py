"""The tests of :class:`torchx_testing.scheduler_suite.SchedulerConformance`, by subject."""
