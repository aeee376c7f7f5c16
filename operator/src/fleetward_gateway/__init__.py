"""The gateway: identity, policy, route, stream."""
