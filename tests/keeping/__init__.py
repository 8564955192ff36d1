"""Working memory that a model keeps."""
