"""Trunks: PJSIP accounts, registration, qualification by OPTIONS."""
