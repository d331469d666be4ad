"""`trunkline demo`: a scripted caller phones the server."""
