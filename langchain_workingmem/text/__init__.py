"""What a model or a person reads: prompt blocks, escaping, chunks."""
