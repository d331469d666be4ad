"""What a page of the dashboard plays, and what microphones it opens."""

from __future__ import annotations

from typing import Final

import numpy as np
from playwright.async_api import Page

from media.audio_port import Samples

RATE: Final = 16000
RECORD_OUTPUT: Final = """
const connect = AudioNode.prototype.connect;
window.heard = [];
AudioNode.prototype.connect = function (target, ...rest) {
  if (target instanceof AudioDestinationNode && !(this instanceof ScriptProcessorNode)) {
    const tap = this.context.createScriptProcessor(4096, 1, 1);
    window.heardRate = this.context.sampleRate;
    tap.onaudioprocess = ({ inputBuffer }) => window.heard.push(...inputBuffer.getChannelData(0));
    connect.call(this, tap);
    connect.call(tap, target);
  }
  return connect.call(this, target, ...rest);
};
const open = MediaDevices.prototype.getUserMedia;
window.tracks = [];
window.wanted = [];
MediaDevices.prototype.getUserMedia = async function (...wanted) {
  window.wanted.push(wanted[0].audio);
  const stream = await open.apply(this, wanted);
  window.tracks.push(...stream.getTracks());
  return stream;
};
window.levels = {};
setInterval(() => {
  for (const { ariaLabel, value } of document.querySelectorAll("meter")) {
    const [least, most] = window.levels[ariaLabel] ?? [1, 0];
    window.levels[ariaLabel] = [Math.min(least, value), Math.max(most, value)];
  }
}, 50);
"""
"""What the page plays is kept, what microphones it has wanted and opened, and the least and the most that each level
meter has shown."""


async def heard_in(page: Page) -> Samples:
    """What the page has played, at 16 kHz."""
    played = np.array(await page.evaluate("window.heard"), np.float64)
    rate = await page.evaluate("window.heardRate")
    at = np.arange(0, len(played), rate / RATE)
    return (np.interp(at, np.arange(len(played)), played) * 32767).astype(np.int16)
