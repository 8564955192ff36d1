"""What runs a plan. To be read in this order: `plan`, `run`, `exchange`; then `clients`, and what a `Call` calls: `calls`."""
