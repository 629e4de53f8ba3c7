"""The nouns that every room shares and the ports between rooms: frozen values, no I/O, standard library only."""
