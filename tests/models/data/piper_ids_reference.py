"""Makes `piper_ids_reference.json`: the phoneme ids of sentences, by the package piper-tts (1.8.0), which is installed
for this alone: `python tests/models/data/piper_ids_reference.py`.

Sentences whose phonemes changed between espeak-ng 1.51 and the newer one in that package are not among them.
"""

from __future__ import annotations

import json
from pathlib import Path

SENTENCES = {
    "en-us": [
        "Hello, world.",
        "What is your name?",
        "Yes: please wait; I will have a look!",
        "He said \u201cstop\u201d. Then he left.",
        "Thanks... I will call back",
    ],
    "de": ["Guten Tag, wie geht es Ihnen?", "Einen Moment bitte \u2013 ich sehe nach.", "Danke aus K\u00f6ln!"],
    "fr": ["Bonjour, comment allez-vous ?", "Un instant; je regarde."],
    "es": ["\u00bfC\u00f3mo est\u00e1 usted? Muy bien.", "Un momento, por favor."],
}


def main() -> None:
    from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP, phonemes_to_ids
    from piper.phonemize_espeak import EspeakPhonemizer

    phonemizer = EspeakPhonemizer()
    made = [
        {
            "espeak": voice,
            "text": text,
            "ids": [phonemes_to_ids(sentence) for sentence in phonemizer.phonemize(voice, text)],
        }
        for voice, texts in SENTENCES.items()
        for text in texts
    ]
    target = Path(__file__).with_suffix(".json")
    target.write_text(json.dumps({"map": DEFAULT_PHONEME_ID_MAP, "sentences": made}) + "\n")


if __name__ == "__main__":
    main()
