"""The life of a call: admission, the conversation loop, what follows a call, webhooks."""
