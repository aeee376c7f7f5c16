"""Who is taken in: expected answers, what steps cost, the predicted wait, and the KV promised."""
