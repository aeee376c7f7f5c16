"""The three listeners: public, admin over TLS, metrics."""
