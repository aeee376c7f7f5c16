"""The engine's admin API: admission, state, policy, purge, evidence and drain."""
