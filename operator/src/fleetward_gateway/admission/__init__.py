"""Who may call what: keys, tenants, services, retention classes. Plain values in, no I/O."""
