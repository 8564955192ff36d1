"""Pictures of records for notebooks and terminals."""
