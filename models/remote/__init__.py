"""Models of another machine that speak the OpenAI protocol: vLLM, Ollama, llama.cpp's server, Speaches."""
