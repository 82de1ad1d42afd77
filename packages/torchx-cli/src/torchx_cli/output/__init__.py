"""What commands print: text, JSON, YAML, colours and times."""
