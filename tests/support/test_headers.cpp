// The target whose precompiled headers all test programs share; it has no code.
