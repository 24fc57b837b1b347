"""Methods with machinery of their own, which plug in by names in `ragen.core.registry`, as a user's package does."""
