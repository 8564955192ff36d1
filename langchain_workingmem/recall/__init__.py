"""Semantic recall, as `memory.recall`: find older messages that matter to a question, with the messages around them."""
