"""Named resources, and typed capabilities."""
