"""What turns cost: plots of tokens, and prices of models."""
