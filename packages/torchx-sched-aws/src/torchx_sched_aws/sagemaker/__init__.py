"""The scheduler ``aws_sagemaker``."""
