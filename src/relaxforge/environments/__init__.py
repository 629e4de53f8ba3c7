"""The immutable folder of an environment version: read, digested, packed, unpacked; its world and its evaluator."""
