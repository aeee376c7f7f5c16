"""Checkpoints in the Hugging Face layout: safetensors, config.json, tokenizer.json."""
