"""Packet capture of RTP on the loopback interface: payloads, levels and send times."""
