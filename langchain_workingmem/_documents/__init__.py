"""Documents of working memory: their formats and schemas, and merges; and messages as JSON. Pure."""
