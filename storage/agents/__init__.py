"""Agents, their tools and remote models."""
