"""One rule: a value flows along every pair that satisfies it.

People like songs; a person's mood is the sum of the songs they like.
"""

from edgewise import Program, R, V

mood = Program([R.mood(V.Person) <= (R.song(V.Song)[0.5], R._likes(V.Person, V.Song))])

solution = mood.solve(
    [
        R.song("waltz")[2.0],
        R.song("march")[4.0],
        R.likes("ann", "waltz"),
        R.likes("ann", "march"),
        R.likes("bob", "march"),
    ]
)

for atom, value in solution[R.mood(V.Person)].items():
    print(f"{atom}: {value:.1f}")

assert solution[R.mood("ann")] == 0.5 * 2.0 + 0.5 * 4.0
