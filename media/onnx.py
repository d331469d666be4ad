"""onnxruntime, silent. Its Linux builds report sessions to their maker (a device id and a queue of events lie in
`~/.cache/Microsoft` and are sent over HTTPS) unless a variable forbids it before the library is loaded;
`disable_telemetry_events` comes too late.
"""

from __future__ import annotations

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

__all__ = ["onnxruntime"]
