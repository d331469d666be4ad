"""Continuous batching on llama.cpp: engine, scheduler, KV cache, latency forecast."""
