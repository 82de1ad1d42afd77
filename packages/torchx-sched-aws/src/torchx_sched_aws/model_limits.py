"""Limits of requests to AWS, from botocore's models.

Written by `python tools/aws_limits.py write`.
"""

from __future__ import annotations

from typing import Any

# ruff: noqa: E501
# fmt: off

#: Limits of ``CreateTrainingJob``.
CREATE_TRAINING_JOB: dict[str, dict[str, Any]] = {
    'HyperParameters': {'max': 100},
    'HyperParameters{name}': {'max': 256, 'pattern': '[^\\n\\r\\x85\\u2028\\u2029]*'},
    'HyperParameters{value}': {'max': 2500, 'pattern': '[^\\n\\r\\x85\\u2028\\u2029]*'},
    'AlgorithmSpecification.TrainingImage': {'max': 255, 'pattern': '[^\\n\\r\\x85\\u2028\\u2029]*'},
    'AlgorithmSpecification.TrainingInputMode': {'values': ('Pipe', 'File', 'FastFile')},
    'AlgorithmSpecification.MetricDefinitions': {'max': 40},
    'AlgorithmSpecification.MetricDefinitions[].Name': {'min': 1, 'max': 255, 'pattern': '[^\\n\\r\\x85\\u2028\\u2029]+'},
    'AlgorithmSpecification.MetricDefinitions[].Regex': {'min': 1, 'max': 500, 'pattern': '[^\\n\\r\\x85\\u2028\\u2029]+'},
    'AlgorithmSpecification.ContainerEntrypoint': {'min': 1, 'max': 100},
    'AlgorithmSpecification.ContainerEntrypoint[]': {'max': 256, 'pattern': '[^\\n\\r\\x85\\u2028\\u2029]*'},
    'AlgorithmSpecification.ContainerArguments': {'min': 1, 'max': 100},
    'AlgorithmSpecification.ContainerArguments[]': {'max': 256, 'pattern': '[^\\n\\r\\x85\\u2028\\u2029]*'},
    'AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode': {'values': ('Platform', 'Vpc')},
    'AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAuthConfig.TrainingRepositoryCredentialsProviderArn': {'min': 1, 'max': 2048, 'pattern': 'arn:[a-zA-Z0-9\\-]+:lambda:[a-zA-Z0-9\\-]+:[0-9]{12}:function:[^\\n\\r\\x85\\u2028\\u2029]*'},
    'RoleArn': {'min': 20, 'max': 2048, 'pattern': 'arn:aws[a-z\\-]*:iam::\\d{12}:role/?[a-zA-Z_0-9+=,.@\\-_/]+'},
    'InputDataConfig[].ChannelName': {'min': 1, 'max': 64, 'pattern': '[A-Za-z0-9\\.\\-_]+'},
    'InputDataConfig[].DataSource.S3DataSource.S3Uri': {'max': 1024, 'pattern': '(https|s3)://([^/]+)/?([^\\n\\r\\x85\\u2028\\u2029]*)'},
    'OutputDataConfig.KmsKeyId': {'max': 2048, 'pattern': '[a-zA-Z0-9:/_-]*'},
    'OutputDataConfig.S3OutputPath': {'max': 1024, 'pattern': '(https|s3)://([^/]+)/?([^\\n\\r\\x85\\u2028\\u2029]*)'},
    'OutputDataConfig.CompressionType': {'values': ('GZIP', 'NONE')},
    'ResourceConfig.VolumeKmsKeyId': {'max': 2048, 'pattern': '[a-zA-Z0-9:/_-]*'},
    'ResourceConfig.KeepAlivePeriodInSeconds': {'max': 21600},
    'VpcConfig.SecurityGroupIds': {'min': 1, 'max': 5},
    'VpcConfig.SecurityGroupIds[]': {'max': 32, 'pattern': '[-0-9a-zA-Z]+'},
    'VpcConfig.Subnets': {'min': 1, 'max': 16},
    'VpcConfig.Subnets[]': {'max': 32, 'pattern': '[-0-9a-zA-Z]+'},
    'StoppingCondition.MaxRuntimeInSeconds': {'min': 1},
    'StoppingCondition.MaxWaitTimeInSeconds': {'min': 1},
    'Tags': {'max': 50},
    'Tags[].Key': {'min': 1, 'max': 128, 'pattern': '([\\w\\s.:/=+\\-@]*)'},
    'Tags[].Value': {'max': 256, 'pattern': '([\\w\\s.:/=+\\-@]*)'},
    'CheckpointConfig.S3Uri': {'max': 1024, 'pattern': '(https|s3)://([^/]+)/?([^\\n\\r\\x85\\u2028\\u2029]*)'},
    'CheckpointConfig.LocalPath': {'max': 4096, 'pattern': '[^\\n\\r\\x85\\u2028\\u2029]*'},
    'Environment': {'max': 100},
    'Environment{name}': {'max': 512, 'pattern': '[a-zA-Z_][a-zA-Z0-9_]*'},
    'Environment{value}': {'max': 512, 'pattern': '[\\S\\s]*'},
    'RetryStrategy.MaximumRetryAttempts': {'min': 1, 'max': 30},
}

#: Limits of ``ListTrainingJobs``.
LIST_TRAINING_JOBS: dict[str, dict[str, Any]] = {
    'MaxResults': {'min': 1, 'max': 100},
}

#: Limits of ``GetLogEvents``.
GET_LOG_EVENTS: dict[str, dict[str, Any]] = {
    'limit': {'min': 1, 'max': 10000},
}
