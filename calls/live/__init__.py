"""What happens now: live calls, numbers and capacity, and the events by which clients follow them."""
