"""The soccer games of Unity ML-Agents, 2v2 and strikers against a goalie, as Numba kernels over many matches at once.

geometry   numbers of the pitch, the bodies and the clock
pitch      what tells the games apart: their agents, how these move, what they see, which walls stand
state      the arrays of N matches
contacts   which bodies touch, and the impulses between them
physics    one fixed step of 0.02 s of one match
sensors    sphere casts of every agent
match      the rules: reset, decision, goal, time limit
env        `Soccer`, the `MultiAgentEnv` around the kernels
bots       two scripted teams
"""
