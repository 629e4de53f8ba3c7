"""Starts and supervises one agent process per Session, and reads what it leaves behind."""
