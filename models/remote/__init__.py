"""Remote models behind the OpenAI API: vLLM, Ollama, llama.cpp's server, Speaches."""
