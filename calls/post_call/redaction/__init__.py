"""Redaction of transcripts: card numbers, identifiers with check digits, spoken digits."""
