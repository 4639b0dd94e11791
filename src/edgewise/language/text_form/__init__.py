"""The text form of the language: the published NeuraLogic grammar, extended to all of Edgewise."""
