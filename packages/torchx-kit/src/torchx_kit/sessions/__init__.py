"""Commands and ports inside replicas: code that several schedulers share."""
