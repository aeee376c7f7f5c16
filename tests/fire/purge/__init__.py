"""The deletion protocol, explored in every order of its events."""
