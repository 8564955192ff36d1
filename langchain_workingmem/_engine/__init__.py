"""What runs a plan. To be read in this order: `plan`, `run_sync`, `exchange`, `replies`; then `run_async` is `run_sync` again.

Beside them: the clients (`clients`, `cluster`), what a `Call` calls (`embedder`, `models`), what watches (`tracing`, `breaker`), threads
(`background`), and the embedded server (`server`, `child`).
"""
