"""Continuous batching on llama.cpp: scheduler, KV cache, latency forecast."""
