"""`trunkline demo`: a scripted caller calls a server with a sample agent."""
