"""Documents of working memory: their formats and schemas, merges and diffs; and messages as JSON. Pure."""
