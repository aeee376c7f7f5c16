"""End-to-end checks on a real Kubernetes."""
