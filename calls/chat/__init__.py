"""Chat tests: conversations without sound, whose words are typed and read, through the conversation of calls."""
