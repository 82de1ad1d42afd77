"""Building blocks for schedulers and workspace builders."""
