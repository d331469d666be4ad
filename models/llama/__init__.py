"""Language models in GGUF files, run by llama.cpp: many calls share one model and one thread."""
