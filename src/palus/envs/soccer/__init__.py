"""SoccerTwos: the 2v2 game of Unity ML-Agents as Numba kernels over many matches at once.

geometry   numbers of the pitch, the bodies and the clock
state      the arrays of N matches
contacts   which bodies touch, and the impulses between them
physics    one fixed step of 0.02 s of one match
sensors    14 sphere casts per agent
match      the rules: reset, decision, goal, time limit
env        `SoccerTwos`, the `MultiAgentEnv` around the kernels
bots       two scripted teams
"""
