"""The values of a document: their names, the items of lists, and values of another format. Pure."""
