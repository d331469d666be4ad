"""Document reader: text extraction from files, chunking into passages, search terms and their ranking.

Files are read in a sandboxed process (`process.worker`), started by `process.extract`. A parser is imported only when a
file of its format is read.
"""
