"""After the call: analysis, redaction, the completed call and its webhook, retention."""
