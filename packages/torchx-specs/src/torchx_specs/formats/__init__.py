"""Reading and writing AppDefs as JSON and YAML."""
