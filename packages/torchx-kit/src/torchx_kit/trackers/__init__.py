"""Parts of trackers (lineage, inlined configurations, checks), and the look-up of trackers."""
