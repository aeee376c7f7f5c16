"""`POST /v1/responses` without a store: its body becomes a chat, its answer a response's items."""
