"""After the call: analysis, redaction, the stored end of the call, the payload of its webhook, retention."""
