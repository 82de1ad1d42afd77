"""TorchX schedulers for AWS Batch (``aws_batch``) and Amazon SageMaker (``aws_sagemaker``).

The public names are in :mod:`torchx_sched_aws.batch.scheduler` and
:mod:`torchx_sched_aws.sagemaker.scheduler`.
"""
