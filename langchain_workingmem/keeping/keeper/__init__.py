"""The keeper: a model that reads what was said, and answers with operations on the document."""
