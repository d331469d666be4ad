"""Models behind one Protocol each: speech to text, language model, text to speech, end of turn, embeddings."""
