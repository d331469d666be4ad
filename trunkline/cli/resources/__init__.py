"""What organizations own, through the functions and the validation of the API."""
