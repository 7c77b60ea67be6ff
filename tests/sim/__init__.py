"""The simulation: a seed, a virtual clock, one real Agent and one real Controller in a hostile fake world."""
