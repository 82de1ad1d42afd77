"""An empty package: TorchX has no adapters to pipelines."""
