"""onnxruntime without telemetry. Its Linux builds report sessions to Microsoft (a device id and an event queue in
`~/.cache/Microsoft`, sent over HTTPS) unless a variable forbids it before the library is loaded;
`disable_telemetry_events` comes too late.
"""

from __future__ import annotations

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

__all__ = ["onnxruntime"]
