"""Knowledge documents below the database: text out of files, passages out of text, words to find them by.

What reads a file runs in a process of its own (`worker`), started by `extract`; nothing here imports a parser before a
file of its kind is read.
"""
