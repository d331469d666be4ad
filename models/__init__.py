"""Local models behind one Protocol each: speech to text, language, text to speech, end of turn."""
