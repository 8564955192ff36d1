"""What runs a plan. Read in this order: `plan`, `run`, `exchange`; then `clients`, and `calls`, what a `Call` calls."""
