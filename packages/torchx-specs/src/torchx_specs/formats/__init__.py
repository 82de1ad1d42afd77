"""AppDefs as documents: JSON and YAML."""
