"""Admission of inbound calls: number routing, concurrency limits, funds, digest authentication, load shedding."""
