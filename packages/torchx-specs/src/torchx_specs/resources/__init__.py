"""Named resources: the registry, and typed capabilities."""
