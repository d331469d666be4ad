"""Prompts: chat templates in their sandbox, tokenization."""
