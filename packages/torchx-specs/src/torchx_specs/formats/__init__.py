"""AppDefs as JSON and YAML."""
