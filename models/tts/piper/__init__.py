"""Piper's voices: VITS networks in ONNX files, run by onnxruntime for all calls."""
