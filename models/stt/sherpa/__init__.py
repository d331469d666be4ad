"""Speech to text by sherpa-onnx: streaming models for all calls in one batch, and offline ones for whole turns."""
