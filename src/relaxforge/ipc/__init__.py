"""Frozen values between our own processes: framed messages over an inherited socket that is also a lifeline."""
