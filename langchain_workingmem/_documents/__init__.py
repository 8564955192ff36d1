"""Documents of working memory: their formats and schemas, merges and diffs. Pure."""
