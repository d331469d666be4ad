"""Calibration of a model's cosines to a similarity of 0..1, because E5's cosines lie between 0.7 and 0.9, MiniLM's
between 0 and 0.7. Each model embeds once a set of queries with known answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from config.errors import ModelError
from models.protocols import Embeddings

TYPICAL: Final = 0.7
"""Similarity of a typical query with its answer."""
_PAIRS: Final = (
    ("How do I get to your office?", "Take the number 4 bus to the market square; the entrance is beside the bakery."),
    ("Is there somewhere to leave the car?", "Two hours of free parking are behind the building."),
    ("Can I bring my dog?", "Pets are welcome on the ground floor when they are on a lead."),
    ("How long does it take until the parcel is here?", "Deliveries arrive within three working days."),
    ("Do you take cards?", "Payment is possible in cash, by debit card and by bank transfer."),
    ("I forgot my password.", "Choose 'reset access' on the login page, and a new code is sent to your mailbox."),
    ("What happens if it rains?", "In bad weather the concert moves to the town hall."),
    ("Is there anything without meat?", "The menu lists four vegetarian dishes, and one for vegans."),
    ("Can I get my money back?", "Unused tickets are refunded within fourteen days of purchase."),
    ("Who do I talk to about a job?", "Applications go to the personnel department, with a letter and a certificate."),
    ("The screen stays black.", "If the device does not start, hold the power button for ten seconds."),
    ("When is the swimming pool cleaned?", "Every first Monday of the month the baths are closed for maintenance."),
)
"""Queries, and passages that answer them in other words."""


@dataclass(frozen=True)
class ScoreCalibration:
    """`low`: nearly all cosines of unrelated texts are below; `high`: that of a typical query with its answer."""

    low: float
    high: float

    def similarity(self, cosine: float) -> float:
        """0..1: unrelated, up to the same text. A typical answer gets `TYPICAL`."""
        if self.high <= self.low or cosine <= self.low:
            return 0.0
        return float(1 - (1 - TYPICAL) ** ((cosine - self.low) / (self.high - self.low)))

    @property
    def is_usable(self) -> bool:
        """True if the model distinguishes answers from other texts at all."""
        return self.high > self.low


async def calibrate(embeddings: Embeddings) -> ScoreCalibration:
    """Measure a model. Raises `ModelError`."""
    queries = await embeddings.embed([question for question, _ in _PAIRS], query=True)
    passages = await embeddings.embed([passage for _, passage in _PAIRS], query=False)
    if queries.shape[1] != passages.shape[1]:
        raise ModelError(f"{embeddings.name} returns vectors of {queries.shape[1]} and of {passages.shape[1]} numbers")
    cosines = queries @ passages.T
    unrelated = cosines[~np.eye(len(_PAIRS), dtype=bool)]
    return ScoreCalibration(float(np.quantile(unrelated, 0.9)), float(np.median(np.diag(cosines))))
