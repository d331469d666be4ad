"""Language models in GGUF files, run by llama.cpp: many calls share one model and one thread."""

import os

# llama.cpp's threads wait for each other hundreds of times in a step, by default for milliseconds at full speed; beside
# any other work that leaves them no processor to go on with, and steps take four times as long or more. With a second
# model they are more threads than processors, and without "active" they would then not wait for a moment before they
# sleep: a word takes a third longer. Both are read when the library is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
os.environ.setdefault("OMP_WAIT_POLICY", "active")
