"""Call progress tones in received audio: special information tones, beeps, fax, ringback, busy."""
