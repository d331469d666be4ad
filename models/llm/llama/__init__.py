"""Language models in GGUF files, run by llama.cpp: all calls share one model and one thread."""

import os

# llama.cpp's threads synchronize hundreds of times in a step, and spin for milliseconds by default: beside any other
# work that takes the cores from each other, and steps take four times as long or more. With a second model there are
# more threads than cores, and without "active" a thread would sleep at once: a token takes a third longer. The library
# reads both when it is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
os.environ.setdefault("OMP_WAIT_POLICY", "active")
